-- What was changed last is shown first: every write takes the next number.
CREATE SEQUENCE knowledge.changes;

CREATE TABLE knowledge.memories (
    id text PRIMARY KEY,
    user_id text NOT NULL,
    -- the repository it is about; null for all
    workspace text,
    category text NOT NULL,
    content text NOT NULL,
    -- of the content: its words as they are written, and their stems
    words tsvector NOT NULL,
    -- the session that wrote it last
    session_id text NOT NULL,
    change bigint NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL
);

CREATE UNIQUE INDEX memories_of_user ON knowledge.memories (user_id, change);
CREATE INDEX memories_words ON knowledge.memories USING gin (words);

-- What was answered to requests that change something, for when one comes again.
CREATE TABLE knowledge.answered (
    session_id text NOT NULL,
    request_id text NOT NULL,
    reply text NOT NULL,
    answered_ms bigint NOT NULL,
    PRIMARY KEY (session_id, request_id)
);

CREATE INDEX answered_when ON knowledge.answered (answered_ms);
