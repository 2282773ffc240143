-- name: find
-- The newest attempt to give a session a sandbox.
SELECT session_id, epoch, state, request::text, ref::text FROM sandbox.sandboxes WHERE session_id = $1;

-- name: live
-- What was starting or running when this service last looked: to be taken up again after a restart.
SELECT session_id, epoch, state, request::text, ref::text FROM sandbox.sandboxes WHERE state IN ('starting', 'running');

-- name: save
-- Store an attempt; an older epoch never replaces a newer one.
INSERT INTO sandbox.sandboxes AS old (session_id, epoch, state, request, ref)
VALUES ($1, $2, $3, $4::jsonb, $5::jsonb)
ON CONFLICT (session_id) DO UPDATE
SET epoch = excluded.epoch, state = excluded.state, request = excluded.request, ref = excluded.ref, changed = now()
WHERE old.epoch <= excluded.epoch;
