-- How much it matters, where an agent says it.
ALTER TABLE notifications.notifications ADD COLUMN level text;

-- What agents write. A note to people is kept here, too, to count how many an agent writes; they have it as a notification.
CREATE TABLE notifications.notes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    -- the session that is to read it; null for people
    mailbox text,
    from_session text NOT NULL,
    level text NOT NULL,
    title text NOT NULL,
    text text NOT NULL,
    created_ms bigint NOT NULL,
    read_ms bigint
);

CREATE INDEX notes_in_mailbox ON notifications.notes (mailbox, number) WHERE mailbox IS NOT NULL;
CREATE INDEX notes_unread ON notifications.notes (mailbox, number) WHERE mailbox IS NOT NULL AND read_ms IS NULL;
CREATE INDEX notes_sent ON notifications.notes (from_session, created_ms);
CREATE INDEX notes_old ON notifications.notes ((CASE WHEN mailbox IS NULL THEN created_ms ELSE read_ms END));

-- What was answered to requests that change something, for when one comes again.
CREATE TABLE notifications.answered (
    session_id text NOT NULL,
    request_id text NOT NULL,
    reply text NOT NULL,
    answered_ms bigint NOT NULL,
    PRIMARY KEY (session_id, request_id)
);

CREATE INDEX answered_when ON notifications.answered (answered_ms);
