-- Forks that a crash left half done are found at start without going through the archive.

CREATE INDEX events_imports ON ledger.events (session_id, type)
WHERE type IN ('fact.session_imported', 'fact.import_completed', 'fact.session_terminated', 'fact.session_failed');
