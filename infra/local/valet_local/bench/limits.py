"""Every time-out of the benchmarks, with its reason. Seconds. How much is measured is in `scale`."""

CHILD_START = 20.0
"""A measuring process to say that it is there: half a second, more on a machine that is busy."""

CHILD_STOP = 5.0
"""A measuring process to end after its input has."""

STEP = 60.0
"""One step of a measurement to be reported; the longest takes ten seconds."""

READY = 90.0
"""A session to be ready: OpenCode's start takes three seconds alone and far more on a busy machine."""

TURN = 60.0
"""One turn of the stand-in, which streams for ten seconds at most."""

SILENCE = 30.0
"""A stream that is read to say something: keep-alive comments come every 15 s."""

FOLD = 180.0
"""The ledger to fold all that was prepared: at a tenth of the aim it would take 40 s."""

SETTLE = 2.0
"""After a step of the fan-out, for what is still on its way."""

POLL = 0.005
"""Between two looks at something that another process changes; below what the figures show."""

PROBE = 0.25
"""One look at OpenCode's health: right after it listens it may take a request and never answer it (measured)."""

# -- load

LOAD_STARTS = 20
"""Simulated runners that start at once: more only wait for each other."""

LOAD_PULL = 30.0
"""A simulated runner's waiting pull: long, because a thousand of them are renewed by one process."""

LOAD_ADD = 600.0
"""A thousand sessions to be made and attached: measured 20 ms each."""

LOAD_SMALL_STEP = 60.0
"""Length of the smaller sizes: with one session that streams, 1,200 deltas."""

LOAD_FLOOR = 5.0
"""Length of the floor of each size."""
