-- Sessions below sessions, and prompts that other sessions' agents wrote.

ALTER TABLE ledger.sessions ADD COLUMN parent text;
ALTER TABLE ledger.sessions ADD COLUMN root text;
ALTER TABLE ledger.sessions ADD COLUMN ancestors json;
ALTER TABLE ledger.sessions ADD COLUMN children integer NOT NULL DEFAULT 0;
ALTER TABLE ledger.sessions ADD COLUMN orchestrator boolean NOT NULL DEFAULT false;
ALTER TABLE ledger.sessions ADD COLUMN completed text;
CREATE INDEX sessions_parent ON ledger.sessions (parent, created_ms DESC, session_id DESC) WHERE parent IS NOT NULL;
CREATE INDEX sessions_root ON ledger.sessions (root) WHERE root IS NOT NULL;
COMMENT ON COLUMN ledger.sessions.root IS 'The topmost session above it; none where a person asked for it.';
COMMENT ON COLUMN ledger.sessions.ancestors IS 'Every session above it, its parent first.';
COMMENT ON COLUMN ledger.sessions.completed IS 'Where its own agent ended it: whether its task was done.';

ALTER TABLE ledger.prompts ADD COLUMN sender json;
COMMENT ON COLUMN ledger.prompts.sender IS 'The session whose agent wrote it; none for a person''s.';
