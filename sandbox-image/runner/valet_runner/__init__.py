"""The one process of a sandbox: runs OpenCode and bridges it to the session log."""
