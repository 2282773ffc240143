"""How long a whole-system test waits for a condition, in seconds. Ceilings: a test that passes does not wait."""

READY = 60.0
"""`valet up` on a loaded machine with everything cached: seconds; the first one unpacks OpenCode."""

TURN = 90.0
"""One scripted turn with a cold sandbox: OpenCode itself takes 3 to 8 s to start on two busy cores."""

STOP = 15.0
"""`valet up` promises to stop in 10."""

REQUEST = 30.0
"""One HTTP request while something is being restarted under it."""

NEWCOMER = 300.0
"""The first command on a machine with nothing: fetching some 150 MB through whatever network there is."""
