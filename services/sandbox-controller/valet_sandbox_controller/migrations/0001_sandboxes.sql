-- One row for every session that ever had a sandbox: the newest attempt.
CREATE TABLE sandbox.sandboxes (
    session_id text PRIMARY KEY,
    epoch integer NOT NULL,
    state text NOT NULL CHECK (state IN ('starting', 'running', 'lost', 'failed', 'hibernated', 'terminated')),
    request jsonb,
    ref jsonb,
    changed timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX sandboxes_live ON sandbox.sandboxes (state) WHERE state IN ('starting', 'running');
