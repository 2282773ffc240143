-- How far the log was read, and up to where it was there before anybody was to be notified. One row.
CREATE TABLE notifications.position (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq bigint NOT NULL,
    silent_until bigint NOT NULL
);

-- What is to be known of a session in order to say who is to be told what.
CREATE TABLE notifications.audiences (
    session_id text PRIMARY KEY,
    audience json NOT NULL
);

-- `number` is the paging cursor: rows are written by one transaction at a time, so it grows in the order of the log.
CREATE TABLE notifications.notifications (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    user_id text NOT NULL,
    kind text NOT NULL,
    session_id text NOT NULL,
    title text NOT NULL,
    text text NOT NULL,
    turn_id text,
    question_id text,
    seq bigint NOT NULL,
    created_ms bigint NOT NULL,
    read_ms bigint
);

CREATE INDEX notifications_of_user ON notifications.notifications (user_id, number);
CREATE INDEX notifications_unread ON notifications.notifications (user_id, number) WHERE read_ms IS NULL;
CREATE INDEX notifications_questions ON notifications.notifications (session_id, question_id)
    WHERE read_ms IS NULL AND question_id IS NOT NULL;
CREATE INDEX notifications_read ON notifications.notifications (read_ms) WHERE read_ms IS NOT NULL;
