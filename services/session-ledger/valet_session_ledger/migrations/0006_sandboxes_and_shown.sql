-- What there is in sandboxes, pictures and channel replies, and which conversation a tool call started.

CREATE TABLE ledger.machine (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    epoch integer NOT NULL,
    status text NOT NULL,
    data json,
    PRIMARY KEY (session_id, kind, name)
);
CREATE INDEX machine_processes ON ledger.machine (session_id, epoch, status, seq) WHERE kind = 'process';
COMMENT ON TABLE ledger.machine IS
    'What runners said last of their sandbox: tunnels, processes, services, steps of the boot. Of an epoch that is over'
    ' nothing runs any more.';

CREATE TABLE ledger.turn_parts (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    part_id text NOT NULL,
    turn_id text,
    message_id text,
    data json NOT NULL,
    PRIMARY KEY (session_id, kind, part_id)
);
CREATE INDEX turn_parts_turn ON ledger.turn_parts (session_id, turn_id);
CREATE INDEX turn_parts_message ON ledger.turn_parts (session_id, message_id) WHERE message_id IS NOT NULL;
COMMENT ON TABLE ledger.turn_parts IS
    'Pictures and channel replies. The log has their turn; they stand in its message that had begun before them.';
COMMENT ON COLUMN ledger.turn_parts.message_id IS 'Outside of a turn: the message of its own.';

ALTER TABLE ledger.parts ADD COLUMN conversation text;
COMMENT ON COLUMN ledger.parts.conversation IS 'The sub-agent that a tool call started, `parent_session` of its messages.';
CREATE INDEX parts_conversation ON ledger.parts (session_id, conversation) WHERE conversation IS NOT NULL;
CREATE INDEX messages_conversation ON ledger.messages (session_id, parent_session, first_seq)
WHERE parent_session IS NOT NULL;
