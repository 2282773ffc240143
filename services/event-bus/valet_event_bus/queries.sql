-- Every statement of the notifications, by name. `$n` are parameters; times are milliseconds since 1970.

-- name: begin
-- The first start: the log as it is then is read for who takes part, and nobody is told of it.
INSERT INTO notifications.position (seq, silent_until) VALUES (0, $1) ON CONFLICT DO NOTHING;

-- name: position
-- How far the log was read.
SELECT seq FROM notifications.position;

-- name: lock_position
-- Begins every transaction that reads on: one at a time, whichever replica it is.
SELECT seq, silent_until FROM notifications.position FOR UPDATE;

-- name: advance
-- Ends it.
UPDATE notifications.position SET seq = $1 WHERE seq < $1;

-- name: audiences
-- What is known of some sessions.
SELECT session_id, audience::text FROM notifications.audiences WHERE session_id = ANY ($1::text[]);

-- name: save_audience
-- What is known of a session now.
INSERT INTO notifications.audiences (session_id, audience) VALUES ($1, $2::json)
ON CONFLICT (session_id) DO UPDATE SET audience = excluded.audience;

-- name: add
-- A notification; the same one again is the same one, and returns nothing.
INSERT INTO notifications.notifications (
    id, user_id, kind, session_id, title, text, turn_id, question_id, level, seq, created_ms
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO NOTHING
RETURNING number;

-- name: settle_question
-- A question that needs no answer any more needs nobody's attention.
UPDATE notifications.notifications SET read_ms = $3
WHERE session_id = $1 AND question_id = $2 AND read_ms IS NULL
RETURNING user_id, id;

-- name: page
-- A user's notifications, newest first.
SELECT number, id, kind, session_id, title, text, turn_id, question_id, level, seq, created_ms, read_ms
FROM notifications.notifications
WHERE user_id = $1 AND number < $2 AND (read_ms IS NULL OR NOT $3)
ORDER BY number DESC
LIMIT $4;

-- name: unread
-- How many a user has not read.
SELECT count(*) FROM notifications.notifications WHERE user_id = $1 AND read_ms IS NULL;

-- name: mark
-- A user has read some; those that were unread.
UPDATE notifications.notifications SET read_ms = $3 WHERE user_id = $1 AND id = ANY ($2::text[]) AND read_ms IS NULL
RETURNING id;

-- name: mark_all
-- A user has read all; those that were unread.
UPDATE notifications.notifications SET read_ms = $2 WHERE user_id = $1 AND read_ms IS NULL
RETURNING id;

-- name: prune
-- Remove what was read before a time.
DELETE FROM notifications.notifications WHERE read_ms < $1;

-- name: lock_sender
-- Begins every note of an agent: one at a time, so that they can be counted.
SELECT pg_advisory_xact_lock(hashtextextended('note from ' || $1, 0));

-- name: lock_mailbox
-- Goes before a note into a mailbox, so that its notes can be counted and their numbers grow in the order they are seen.
SELECT pg_advisory_xact_lock(hashtextextended('note to ' || $1, 0));

-- name: sent
-- How many notes an agent has written since a time.
SELECT count(*) FROM notifications.notes WHERE from_session = $1 AND created_ms >= $2;

-- name: add_note
-- A note, into a mailbox or, where none is named, to the people of the session.
INSERT INTO notifications.notes (id, mailbox, from_session, level, title, text, created_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: mailbox
-- The notes in a session's mailbox, newest first.
SELECT number, id, from_session, level, title, text, created_ms, read_ms FROM notifications.notes
WHERE mailbox = $1 AND number < $2 AND (read_ms IS NULL OR NOT $3)
ORDER BY number DESC
LIMIT $4;

-- name: unread_notes
-- How many of them are unread.
SELECT count(*) FROM notifications.notes WHERE mailbox = $1 AND read_ms IS NULL;

-- name: mark_notes
-- A session has dealt with some; those that were unread.
UPDATE notifications.notes SET read_ms = $3 WHERE mailbox = $1 AND id = ANY ($2::text[]) AND read_ms IS NULL
RETURNING id;

-- name: mark_all_notes
-- A session has dealt with all; those that were unread.
UPDATE notifications.notes SET read_ms = $2 WHERE mailbox = $1 AND read_ms IS NULL RETURNING id;

-- name: prune_notes
-- Remove notes that were read before a time, and those to people, who have theirs as notifications.
DELETE FROM notifications.notes WHERE CASE WHEN mailbox IS NULL THEN created_ms ELSE read_ms END < $1;

-- name: prune_answers
-- Answers that nobody asks for again.
DELETE FROM notifications.answered WHERE answered_ms < $1;
