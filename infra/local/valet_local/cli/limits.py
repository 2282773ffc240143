"""Every time-out of the commands for people, with its reason. Seconds."""

ABORT_WAIT = 16.0
"""From Ctrl-C to the end of the turn: the platform gives the agent 15 seconds and then ends the turn itself."""

DEMO_QUESTION = 5
"""How long the demo's question waits: time to read it, not to get bored."""

MODEL_START = 15.0
"""The scripted model to listen; it takes half a second, more on a machine that is busy."""

MODEL_STOP = 3.0
"""The scripted model to end, which it does at once."""

JOURNAL_LOOK = 0.1
"""Between two looks at what the starting platform has written; what an eye can follow."""

SANDBOX_PATIENCE = 10.0
"""How long a request to a sandbox is repeated while its gateway restarts, which takes a second."""

SANDBOX_CONNECT = 10.0
"""For a connection to a sandbox's process to be there: milliseconds, more on a machine that is busy."""

ATTACH_PATIENCE = 120.0
"""How long a process is looked for again after a cut: longer than any restart of the platform."""

SEND_RETRY = 0.05
"""After input that could not be sent: the next connection takes at least that."""

INPUT_BYTES = 32 << 10
"""Of standard input at once: a process takes a megabyte at most, and others on the connection wait for it."""

INPUT_PIECES = 8
"""Read ahead of what the process has taken: a quarter of a megabyte."""
