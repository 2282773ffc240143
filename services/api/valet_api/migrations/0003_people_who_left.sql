-- People who were removed stay by name in the history of their sessions; their name is free for somebody else. A revoked
-- token stays, too: the request that made it, repeated, must not make it valid again.

ALTER TABLE identity.users ADD COLUMN removed timestamptz;
ALTER TABLE identity.users DROP CONSTRAINT users_name_key;
CREATE UNIQUE INDEX users_name ON identity.users (name) WHERE removed IS NULL;

ALTER TABLE identity.tokens ADD COLUMN revoked timestamptz;
