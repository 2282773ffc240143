-- `number` grows as tasks are put on a board: of equally urgent ones the oldest comes first.
CREATE TABLE automation.tasks (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    -- whose board it is on
    user_id text NOT NULL,
    title text NOT NULL,
    description text NOT NULL,
    status text NOT NULL,
    -- 0 low, 1 normal, 2 high, 3 urgent
    priority smallint NOT NULL,
    assigned_session text,
    parent_task text,
    blocked_by text[] NOT NULL,
    result text NOT NULL,
    created_by text NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL
);

CREATE INDEX tasks_of_user ON automation.tasks (user_id, priority DESC, number);
CREATE INDEX tasks_unfinished ON automation.tasks (user_id) WHERE status NOT IN ('done', 'cancelled');
CREATE INDEX tasks_finished ON automation.tasks (updated_ms) WHERE status IN ('done', 'cancelled');

-- What was answered to requests that change something, for when one comes again.
CREATE TABLE automation.answered (
    session_id text NOT NULL,
    request_id text NOT NULL,
    reply text NOT NULL,
    answered_ms bigint NOT NULL,
    PRIMARY KEY (session_id, request_id)
);

CREATE INDEX answered_when ON automation.answered (answered_ms);
