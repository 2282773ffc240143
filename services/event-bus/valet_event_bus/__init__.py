"""Real time for people: SSE and WebSocket fan-out of the session log."""
