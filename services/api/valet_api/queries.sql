-- name: user_of_token
-- Who signs in with the token of this hash.
SELECT users.id, users.name, users.admin
FROM identity.tokens JOIN identity.users ON users.id = tokens.user_id
WHERE tokens.hash = $1;

-- name: add_user
-- A new user; no row comes back when the name is taken.
INSERT INTO identity.users (id, name, admin) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- name: user_named
-- The user of a name.
SELECT id, name, admin FROM identity.users WHERE name = $1;

-- name: add_token
-- Let a user sign in with the token of this hash; a token of somebody else stays theirs.
INSERT INTO identity.tokens (hash, user_id, origin) VALUES ($1, $2, $3)
ON CONFLICT (hash) DO NOTHING;

-- name: drop_file_tokens
-- Earlier contents of the token file no longer sign in.
DELETE FROM identity.tokens WHERE user_id = $1 AND origin = 'file' AND hash <> $2;

-- name: ping
-- Whether the database answers.
SELECT 1;
