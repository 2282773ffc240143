"""The event catalogue: what can happen in a session, by the source that says so."""
