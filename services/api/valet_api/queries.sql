-- name: user_of_token
-- Who signs in with the token of this hash.
SELECT users.id, users.name, users.admin, users.email, users.display_name
FROM identity.tokens JOIN identity.users ON users.id = tokens.user_id
WHERE tokens.hash = $1 AND tokens.revoked IS NULL AND users.removed IS NULL;

-- name: add_user
-- A new user; no row comes back when the name is taken, or the id (the same request again).
INSERT INTO identity.users (id, name, admin, email, display_name) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: user_named
-- The user of a name.
SELECT id, name, admin FROM identity.users WHERE name = $1 AND removed IS NULL;

-- name: user_known_as
-- The user of an id or a name; an id goes first.
SELECT id, name FROM identity.users
WHERE (id = $1 OR name = $1) AND removed IS NULL ORDER BY id <> $1 LIMIT 1;

-- name: all_users
-- Everybody who may sign in, by name.
SELECT id, name, admin, email, display_name FROM identity.users WHERE removed IS NULL ORDER BY name;

-- name: remove_user
-- Somebody may not sign in any more; what they did stays theirs.
UPDATE identity.users SET removed = now() WHERE id = $1 AND removed IS NULL;

-- name: revoke_tokens
-- Whatever a user signed in with until now, but for the token of this hash.
UPDATE identity.tokens SET revoked = now() WHERE user_id = $1 AND revoked IS NULL AND hash IS DISTINCT FROM $2;

-- name: users_of
-- The names of some users.
SELECT id, name FROM identity.users WHERE id = ANY($1::text[]);

-- name: change_user
-- How a user wants to be named; what is not to change is given as it is.
UPDATE identity.users SET email = $2, display_name = $3 WHERE id = $1;

-- name: add_token
-- Let a user sign in with the token of this hash; a token of somebody else stays theirs.
INSERT INTO identity.tokens (hash, user_id, origin) VALUES ($1, $2, $3)
ON CONFLICT (hash) DO NOTHING
RETURNING user_id;

-- name: drop_file_tokens
-- Earlier contents of the token file no longer sign in.
DELETE FROM identity.tokens WHERE user_id = $1 AND origin = 'file' AND hash <> $2;

-- name: reserve_reply
-- Take a key for a request in flight. A row comes back if it was free, its answer too old, or its holder crashed.
INSERT INTO identity.replies (user_id, route, key, digest, holder, held_until)
VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))
ON CONFLICT (user_id, route, key) DO UPDATE
SET digest = excluded.digest, holder = excluded.holder, held_until = excluded.held_until,
    status = NULL, headers = NULL, body = NULL, created = now()
WHERE (replies.created < now() - make_interval(secs => $7)
       AND (replies.holder IS NULL OR replies.held_until < now()))
   OR (replies.held_until < now()
       AND (replies.digest IS NULL OR excluded.digest IS NULL OR replies.digest = excluded.digest))
RETURNING key;

-- name: find_reply
-- What is known of a key.
SELECT digest, holder IS NOT NULL AS running, status, headers, body
FROM identity.replies WHERE user_id = $1 AND route = $2 AND key = $3;

-- name: renew_reply
-- The request in flight is still at work.
UPDATE identity.replies SET held_until = now() + make_interval(secs => $5)
WHERE user_id = $1 AND route = $2 AND key = $3 AND holder = $4;

-- name: keep_reply
-- The request was answered.
UPDATE identity.replies
SET digest = $5, status = $6, headers = $7, body = $8, holder = NULL, held_until = NULL, created = now()
WHERE user_id = $1 AND route = $2 AND key = $3 AND holder = $4;

-- name: release_reply
-- The request came to nothing that is worth remembering: the key is free again.
DELETE FROM identity.replies WHERE user_id = $1 AND route = $2 AND key = $3 AND holder = $4;

-- name: drop_old_replies
-- Answers that nobody asks for any more.
DELETE FROM identity.replies
WHERE created < now() - make_interval(secs => $1) AND (holder IS NULL OR held_until < now());

-- name: add_attachment
-- A file that is in the object store; the same id again changes nothing.
INSERT INTO identity.attachments (session_id, attachment_id, name, mime, bytes, sha256, author)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (session_id, attachment_id) DO NOTHING;

-- name: attachments_named
-- What is known of some attachments of a session.
SELECT attachment_id, name, mime, bytes, sha256
FROM identity.attachments WHERE session_id = $1 AND attachment_id = ANY($2::text[]);

-- name: attachments_of
-- All attachments of a session.
SELECT attachment_id, name, mime, bytes, sha256
FROM identity.attachments WHERE session_id = $1 ORDER BY created, attachment_id;

-- name: ping
-- Whether the database answers.
SELECT 1;
