-- Prompt modes and kinds, channels, failover, per-turn diffs, reviews, reverts, commands, sharing, saved work.

ALTER TABLE ledger.sessions ADD COLUMN policy json;
ALTER TABLE ledger.sessions ADD COLUMN source_session text;
ALTER TABLE ledger.sessions ADD COLUMN work json;
COMMENT ON COLUMN ledger.sessions.work IS 'The latest saved work, as its event names it.';

ALTER TABLE ledger.turns ADD COLUMN kind text;
ALTER TABLE ledger.turns ADD COLUMN channel text;
ALTER TABLE ledger.turns ADD COLUMN model text;
COMMENT ON COLUMN ledger.turns.model IS 'The first model that had it; `switches` has the others.';
CREATE INDEX turns_order ON ledger.turns (session_id, first_seq);

ALTER TABLE ledger.messages ADD COLUMN place integer;
COMMENT ON COLUMN ledger.messages.place IS 'Among the messages that one event began, where it began several.';
COMMENT ON COLUMN ledger.messages.text IS 'None for a person''s message that has the text of the prompt of the same id.';

ALTER TABLE ledger.prompts ADD COLUMN kind text;
ALTER TABLE ledger.prompts ADD COLUMN attachments json;
CREATE INDEX prompts_order ON ledger.prompts (session_id, first_seq);
CREATE INDEX prompts_turn ON ledger.prompts (session_id, turn_id);

-- what was there before: every prompt was an ordinary one without attachments, and had a turn of its own
UPDATE ledger.prompts SET kind = 'prompt', attachments = '[]';
UPDATE ledger.turns AS t SET kind = 'prompt', channel = p.channel, model = p.model
FROM ledger.prompts AS p WHERE p.session_id = t.session_id AND p.prompt_id = t.prompt_id;

CREATE TABLE ledger.switches (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    turn_id text NOT NULL,
    from_model text NOT NULL,
    to_model text NOT NULL,
    error json NOT NULL,
    PRIMARY KEY (session_id, first_seq)
);
COMMENT ON TABLE ledger.switches IS 'Turns that went on with another model, and why.';

CREATE TABLE ledger.turn_diffs (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    turn_id text NOT NULL,
    files json NOT NULL,
    patch text NOT NULL,
    truncated boolean NOT NULL,
    PRIMARY KEY (session_id, turn_id)
);
COMMENT ON TABLE ledger.turn_diffs IS 'What each turn changed in the workspace.';

CREATE TABLE ledger.reviews (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    turn_id text NOT NULL,
    summary text NOT NULL,
    findings json NOT NULL,
    PRIMARY KEY (session_id, turn_id)
);

CREATE TABLE ledger.reverts (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    channel text NOT NULL,
    message_id text,
    PRIMARY KEY (session_id, first_seq)
);
COMMENT ON TABLE ledger.reverts IS
    'Conversations taken back to before a message, or, without one, what was taken back counts again.';

CREATE TABLE ledger.commands (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    request_id text NOT NULL,
    command text,
    digest text,
    status text NOT NULL,
    result json,
    error text,
    due_ms bigint,
    PRIMARY KEY (session_id, request_id)
);
CREATE INDEX commands_pending ON ledger.commands (session_id, first_seq) WHERE status = 'requested';

CREATE TABLE ledger.participants (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    user_id text NOT NULL,
    role text NOT NULL,
    link_id text,
    present boolean NOT NULL,
    PRIMARY KEY (session_id, user_id)
);
CREATE INDEX participants_user ON ledger.participants (user_id) WHERE present;
COMMENT ON TABLE ledger.participants IS 'Who takes part in a session besides its owner, or did.';

CREATE TABLE ledger.links (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    link_id text NOT NULL,
    role text,
    expires_ms bigint,
    created_by text,
    revoked boolean NOT NULL,
    PRIMARY KEY (session_id, link_id)
);
COMMENT ON TABLE ledger.links IS 'Share links. Their tokens are nowhere; the states hold digests.';
