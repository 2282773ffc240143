"""Every time-out and size of the one-machine platform, with its reason. Seconds unless the name says
otherwise.
"""

READY_TIMEOUT = 30.0
"""A service to say READY=1. Warm it takes under two seconds; a slow disk with much to replay takes longer."""

SERVER_READY_TIMEOUT = 30.0
"""NATS and PostgreSQL to accept connections; recovery of a large log after a crash reads it once."""

INITDB_TIMEOUT = 60.0
"""Making an empty database takes half a second on an idle machine (reference measurements), far more on a
busy one.
"""

SERVICE_GRACE = 5.0
"""What services have between SIGTERM and SIGKILL: their promise is to stop within five seconds."""

SERVER_GRACE = 3.5
"""The same for NATS and PostgreSQL, which stop after the services. Together under the ten seconds of `valet
up`.
"""

KILL_WAIT = 1.0
"""Between SIGKILL and the end of a process; longer means it hangs in the kernel."""

DOWN_TIMEOUT = 15.0
"""`valet down` waits this long for an orderly stop (ten seconds) before it kills what is left."""

BACKOFF_FIRST = 0.1
"""Wait before the first restart of a process that died: most deaths are single."""

BACKOFF_LONGEST = 3.0
"""Wait no longer than this between restarts: recovery is promised within five seconds, and a start takes one or two."""

BACKOFF_RESET_AFTER = 10.0
"""A process that was up this long has recovered: its next death counts as its first."""

START_ATTEMPTS = 4
"""How often a process may die before its first READY until `valet up` gives up and shows its log."""

POLL = 0.01
"""Between two looks at whether NATS or PostgreSQL has come up; they need 15-50 ms."""

LOG_CHECK = 15.0
"""Between two looks at the sizes of the log files."""

LOG_CAP_BYTES = 16 << 20
"""Size at which a log file is moved aside; one older file is kept, so a service may hold twice this."""

LOG_TAIL_LINES = 15
"""How much of a log is shown when a process did not start."""

FREE_DISK_MB = 512
"""Least room to start: an empty platform takes about 60 MB, the agent's binary 190 MB; and a database on a
full disk loses its service.
"""

LOW_DISK_MB = 1024
"""Less free space than this is worth a warning: a clone with its dependencies takes some hundred MB."""

FULL_DISK_MB = 64
"""Less than this is as good as full: PostgreSQL wants 16 MB at a time for its log and NATS 8 MB, and whoever writes
beside them is faster. NATS is not started again for less."""

ROOM_AGAIN = 1.25
"""How many times a threshold must be free before its warning is taken back: who deletes one file is not told twice."""

DISK_CHECK = 5.0
"""Between two looks at the disk and at whether the log can be written: recovery is promised within ten seconds."""

HEALTH_TIMEOUT = 3.0
"""NATS to answer on its health page; it answers from memory."""

UNSTICK_FIRST = 10.0
"""Wait before NATS is started a second time because it cannot write: the first did not help, clients reconnect."""

UNSTICK_LONGEST = 300.0
"""Wait no longer than this between such starts: whoever mends a broken disk should not have to start it by hand."""

UNIX_PATH_LONGEST = 70
"""Longest run directory, in bytes: a unix socket's path may have 107, and the longest name below it has 36.
"""

MAX_PAYLOAD_BYTES = 8 << 20
"""Largest NATS message: a completed tool call carries its whole output."""

DATABASE_CONNECTIONS = 60
"""Most connections to PostgreSQL: five services with pools of at most eight, and room for a person with psql.
"""

PROBE_TIMEOUT = 10.0
"""A program to answer `--version`, and bubblewrap to run `true`."""

FETCH_TIMEOUT = 900.0
"""Download of the agent (60 MB): a minute on a 10 Mbit/s line, more on a worse one."""

FETCH_SMALL_TIMEOUT = 30.0
"""Download of a package of one megabyte that a start can do without: who has no network waits for it at every start."""

FETCH_ATTEMPTS = 3
"""Tries of a download that can be tried again: most failures of a network are of one moment."""

FETCH_PAUSE = 2.0
"""Before a download is tried again."""

FETCH_STALL = 30.0
"""A download of which nothing comes for so long has no network; npm itself would wait five minutes."""

FETCH_QUIET = 5.0
"""After this long without a byte, that is said: who sees nothing at all takes it for a crash."""

FETCH_POLL = 0.2
"""Between two looks at how far a download has come; what a progress bar can show."""

MODELS_TIMEOUT = 60.0
"""`opencode models` boots the agent, two to three seconds of processor time."""

LAUNCH_TIMEOUT = 120.0
"""A platform started by another process to be ready: the first start makes the database, and the machine may
be busy.
"""

COMPILE_TIMEOUT = 60.0
"""For compiling what sandboxes run, once: 2 to 3 s; longer means that the machine has no time for it."""
