"""Every limit and time-out of the process service, each with its reason. Seconds unless the name says otherwise."""

# -- output

RING_BYTES = 1 << 20
"""What is kept in memory of one process's output: twenty thousand lines, more than a terminal scrolls back, and a
connection that was away for a moment finds its place."""

RING_CHUNK_BYTES = 1 << 16
"""Longest run of output stored as one piece: what one read takes from a pipe."""

RING_CHUNK_COST = 128
"""What a piece costs besides its bytes, so that a program that writes single bytes to each stream is bounded too."""

RINGS_BYTES = 64 << 20
"""All rings together: `RUNNING_MAX` full ones. Of ended processes the longest ended gives up its output first."""

SPOOL_BYTES = 512 << 20
"""A whole output on disk (`keep_output`): a day of a chatty build. Beyond it the ring goes on alone."""

SPOOLS_BYTES = 2 << 30
"""All of them together: a sandbox's disk is for the workspace."""

READ_BYTES = 1 << 16
"""One read from a process: a pipe holds as much."""

FRAME_BYTES = 1 << 15
"""Longest WebSocket frame of output: a screen is 10 KB, and others get their turn between two frames."""

LAST_READS = 16
"""Reads of what is left in a pipe or terminal when a process is over: the largest pipe one may ask for has 1 MiB."""

PATIENCE = 5.0
"""How long one client may hold a process's output up, for every `RING_BYTES` it reads (so at least 200 KB/s): a pause
of garbage collection or of a busy machine is shorter, a person's paused browser tab is longer."""

FIRST_CLIENT_WAIT = 2.0
"""How long a process that has filled its ring before any client came waits for one: whoever starts it connects next."""

# -- processes

RUNNING_MAX = 64
"""Processes running at once: a person has a dozen terminals, an agent starts a few servers; more is a loop."""

EXITED_KEPT = 100
"""Records of ended processes, newest kept: what a list shows without becoming one nobody reads."""

EXITED_AGE = 8 * 3600.0
"""How long a record of an ended process stays: a working day."""

SWEEP_EVERY = 30.0
"""Between looks for records that are too old; nobody waits for it."""

STOP_GRACE = 3.0
"""Between SIGTERM and SIGKILL of a process that is deleted: what editors and servers need to write their files."""

KILL_GRACE = 3.0
"""After SIGKILL: only a process that waits for a broken disk is still there, and that is said."""

LEFTOVER_GRACE = 2.0
"""How long those that a process left behind in its group may go on after its end: a `tee` it wrote to ends at once."""

LEFTOVER_TERM = 1.0
"""Between their SIGTERM and SIGKILL."""

LAST_OUTPUT = 0.5
"""After the group's end: one that left it (a daemon) may hold the pipe open for ever."""

LOOK_EVERY = 0.03
"""Between looks at the table of processes while some are being ended."""

SERVICE_STOP = 0.9
"""SIGTERM to SIGKILL of all processes when the service ends, which must be over in 2 s."""

SERVICE_STOP_KILL = 0.4
"""After that SIGKILL, for the ends to be recorded and told."""

SERVICE_STOP_CLIENTS = 0.3
"""For clients to be told goodbye."""

# -- requests

BODY_BYTES = 2 << 20
"""A request: `INPUT_BYTES` in base64, and what the kernel takes as arguments and environment (2 MB)."""

INPUT_BYTES = 1 << 20
"""One piece of input: a large paste. More is sent in pieces, or is a file."""

INPUT_WAITING_BYTES = 4 << 20
"""Input a process has not read yet; more is refused, or waited for on a WebSocket."""

INPUT_WAIT = 5.0
"""How long a WebSocket's input waits for the process to read what was before it; then it is refused."""

ARGS_BYTES = 128 << 10
"""A command with its arguments: it is in every event and list, and the kernel takes no longer single argument."""

NAME_CHARS = 64
"""A tag."""

LABEL_CHARS = 200
"""A label: one line of a list."""

SESSION_CHARS = 128
"""A session id."""

KEY_CHARS = 200
"""An `Idempotency-Key`; the same as the platform's own API takes."""

ANSWERS_KEPT = 1000
"""Answers of requests with a key: who repeats one does it within seconds, and a person types a few keys in them."""

ANSWERS_BYTES = 16 << 20
"""Of these answers: usually half a megabyte, but arguments may be long."""

TERMINAL_MAX = 2000
"""Rows or columns of a terminal: five 4K screens; full-screen programs allocate rows times columns."""

# -- clients

CONNECTIONS_MAX = 256
"""WebSockets and event streams at once, for all processes: a file descriptor and 200 KB each at worst."""

HEARTBEAT = 30.0
"""Between pings of a WebSocket, and comments of an event stream: proxies cut what is silent for a minute."""

CLOSE_TIMEOUT = 5.0
"""For a client's answer to a close frame; then the connection is dropped."""

EVENTS_BYTES = 16 << 20
"""Of their data: usually half a megabyte, but arguments may be long."""

EVENTS_KEPT = 1000
"""Events a client can catch up on: a runner that restarts missed a few. Who missed more gets a snapshot instead."""

TICKET_AGE = 60.0
"""Of a ticket of the OpenCode routes, as OpenCode's own (measured)."""

TICKETS_MAX = 256
"""Tickets not used yet; the oldest goes."""

CLIENT_TIMEOUT = 15.0
"""Any request of our own client: a delete takes `STOP_GRACE` and `KILL_GRACE` at worst."""

TEST_START = 30.0
"""For the service to be ready in tests: half a second on an idle machine."""
