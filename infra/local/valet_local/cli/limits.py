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
