-- Found before every purge of deltas: the few messages that are not whole yet.
CREATE INDEX messages_unfinished ON ledger.messages (session_id, turn_id) WHERE NOT complete;
