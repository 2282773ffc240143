-- People and the tokens they sign in with. Of a token only its SHA-256 is kept: tokens are random, so it needs no salt.

CREATE TABLE identity.users (
    id      text PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    admin   boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE identity.tokens (
    hash    bytea PRIMARY KEY,
    user_id text NOT NULL REFERENCES identity.users (id) ON DELETE CASCADE,
    origin  text NOT NULL CHECK (origin IN ('file', 'issued')),
    created timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX tokens_user ON identity.tokens (user_id);
