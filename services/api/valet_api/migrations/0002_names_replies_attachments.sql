-- How people want to be named in commits; the answers of requests that must not be done twice; what is known of files
-- in the object store.

ALTER TABLE identity.users ADD COLUMN email text, ADD COLUMN display_name text;

CREATE TABLE identity.replies (
    user_id      text NOT NULL,
    route        text NOT NULL,             -- method and path
    key          text NOT NULL,             -- the client's Idempotency-Key
    digest       bytea,                     -- SHA-256 of the request; none until its body was read
    holder       text,                      -- the request in flight; none once it is answered
    held_until   timestamptz,               -- when the request in flight counts as crashed
    status       integer,                   -- the answer
    headers      jsonb,
    body         bytea,                     -- none where the answer has a secret in it: it is made again
    created      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, route, key)
);

CREATE INDEX replies_created ON identity.replies (created);

CREATE TABLE identity.attachments (
    session_id    text NOT NULL,
    attachment_id text NOT NULL,
    name          text NOT NULL,
    mime          text NOT NULL,
    bytes         bigint NOT NULL,
    sha256        text NOT NULL,
    author        text NOT NULL,
    created       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, attachment_id)
);
