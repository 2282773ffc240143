-- The read models of the session ledger. All of them but `events` can be folded again from the log.
-- Times are milliseconds since 1970. `first_seq` is the sequence of the event that began a row, `seq` of the last in it.

CREATE TABLE ledger.checkpoints (
    shard integer PRIMARY KEY,
    seq bigint NOT NULL
);
COMMENT ON TABLE ledger.checkpoints IS 'Up to which sequence each shard is projected; advanced with the rows themselves.';

CREATE TABLE ledger.events (
    seq bigint PRIMARY KEY,
    session_id text NOT NULL,
    type text NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX events_session ON ledger.events (session_id, seq);
COMMENT ON TABLE ledger.events IS 'Archive of the log without deltas. convert_from(payload, ''UTF8'') is the CloudEvent.';

CREATE TABLE ledger.states (
    session_id text PRIMARY KEY,
    seq bigint NOT NULL,
    state bytea NOT NULL
);
COMMENT ON TABLE ledger.states IS 'Snapshots of what decisions are made on (MessagePack).';

CREATE TABLE ledger.sessions (
    session_id text PRIMARY KEY,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    owner text NOT NULL,
    title text NOT NULL,
    repo text,
    branch text,
    model text NOT NULL,
    status text NOT NULL,
    status_detail text NOT NULL,
    epoch integer NOT NULL,
    turns integer NOT NULL,
    active_turn text,
    last_turn text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    next_due_ms bigint,
    at_rest boolean NOT NULL
);
CREATE INDEX sessions_owner ON ledger.sessions (owner, created_ms DESC, session_id DESC);
CREATE INDEX sessions_restless ON ledger.sessions (session_id) WHERE NOT at_rest;
COMMENT ON COLUMN ledger.sessions.next_due_ms IS 'When something is to be decided although nothing happens.';
COMMENT ON COLUMN ledger.sessions.at_rest IS 'Whether nothing is to be decided before the next event.';

CREATE TABLE ledger.turns (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    turn_id text NOT NULL,
    prompt_id text,
    status text NOT NULL,
    error json,
    cost double precision,
    tokens json,
    started_ms bigint,
    ended_ms bigint,
    first_token_ms bigint,
    duration_ms bigint,
    PRIMARY KEY (session_id, turn_id)
);

CREATE TABLE ledger.messages (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    message_id text NOT NULL,
    turn_id text,
    role text NOT NULL,
    author text,
    text text,
    finish text,
    model text,
    cost double precision,
    tokens json,
    error json,
    parent_session text,
    complete boolean NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (session_id, message_id)
);
CREATE INDEX messages_order ON ledger.messages (session_id, first_seq);

CREATE TABLE ledger.parts (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    message_id text NOT NULL,
    part_id text NOT NULL,
    kind text NOT NULL,
    text text,
    tool text,
    call_id text,
    status text,
    input json,
    output text,
    title text,
    error text,
    started_ms bigint,
    ended_ms bigint,
    PRIMARY KEY (session_id, message_id, part_id)
);

CREATE TABLE ledger.prompts (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    prompt_id text NOT NULL,
    content text,
    author text,
    mode text,
    channel text,
    model text,
    digest text,
    status text NOT NULL,
    turn_id text,
    accepted_ms bigint,
    PRIMARY KEY (session_id, prompt_id)
);
CREATE INDEX prompts_queued ON ledger.prompts (session_id, first_seq) WHERE status = 'queued';

CREATE TABLE ledger.questions (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    question_id text NOT NULL,
    kind text,
    status text NOT NULL,
    questions json,
    due_ms bigint,
    answers json,
    answered_by text,
    answered_user text,
    turn_id text,
    PRIMARY KEY (session_id, question_id)
);
CREATE INDEX questions_open ON ledger.questions (session_id, first_seq) WHERE status = 'open';

CREATE TABLE ledger.diffs (
    session_id text PRIMARY KEY,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    base_commit text,
    head_commit text,
    branch text,
    files json NOT NULL,
    patch text NOT NULL,
    truncated boolean NOT NULL
);
COMMENT ON TABLE ledger.diffs IS 'The latest diff of each session.';

CREATE TABLE ledger.todos (
    session_id text PRIMARY KEY,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    items json NOT NULL
);

CREATE TABLE ledger.usage (
    session_id text NOT NULL,
    first_seq bigint NOT NULL,
    seq bigint NOT NULL,
    message_id text NOT NULL,
    turn_id text,
    model text,
    cost double precision NOT NULL,
    input bigint NOT NULL,
    output bigint NOT NULL,
    reasoning bigint NOT NULL,
    cache_read bigint NOT NULL,
    cache_write bigint NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (session_id, message_id)
);
CREATE INDEX usage_latest ON ledger.usage (seq DESC);
COMMENT ON TABLE ledger.usage IS 'Model usage by message; cost in US dollars, the rest in tokens.';
