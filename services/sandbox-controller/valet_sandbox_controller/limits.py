"""Every limit and time-out of the sandbox controller and its portal, each with its reason; seconds if not said."""

TERM_GRACE = 3.0
"""A runner told to end flushes its events in that time; the platform's orderly stop allows five seconds in all."""

KILL_WAIT = 2.0
"""The kernel takes a killed process-id namespace apart; measured in milliseconds, longer only under memory pressure."""

START_TIMEOUT = 10.0
"""bwrap sets up its mounts in 6–30 ms (measured); ten seconds means the machine is in trouble."""

START_POLL = 0.001
"""bwrap has no signal for "the mounts are made", so its progress is looked at; it takes a few milliseconds."""

PROBE_TIMEOUT = 5.0
"""`bwrap … true` when the service starts."""

EXIT_CODE_WAIT = 1.0
"""bwrap's monitor writes the exit code just after the sandbox has ended."""

FINISH_STARTS = 0.5
"""At an orderly stop, for sandboxes that are just being made: that takes some ten milliseconds."""

HIBERNATE_FLUSH = 0.8
"""Last announcements at an orderly stop; the broker is near, and the supervisor's patience is five seconds."""

RETRY_AFTER = 1.0
"""Before a request that could not be served (broker or database away) is delivered again."""

LOG_BYTES = 8 << 20
"""A sandbox's log: some days of a runner's messages, and hundreds of sandboxes do not fill a disk."""

LOG_CHECK = 60.0
"""How often the size of the logs is looked at."""

LOG_TAIL_BYTES = 2000
"""How much of a failing bwrap's words goes into the event."""

FREE_DISK_BYTES = 64 << 20
"""Below this no sandbox is started: a clone would fail half-way with worse words."""

TOKEN_TTL = 30 * 24 * 3600
"""A runner's credentials and portal token: longer than any sandbox lives, short enough that a stolen one dies."""

SPEC_BYTES = 1 << 20
"""Most of what a runner is told: the largest pipe that Linux gives to anybody. A hundred models are 20 KB."""

OWNER_WAIT = 0.5
"""For the ledger to say whose session it is when its sandbox starts: it answers in a millisecond, and a sandbox must
not wait for one that restarts."""

CGROUP_AGE = 60.0
"""Empty control groups older than that are left-overs: between making and joining one lie milliseconds."""

OPEN_FILES = 65_536
"""Open files of a sandbox: build tools and file watchers need thousands; the hard limit of the machine stays above."""

PATH_BINDS = 200
"""Directories and programs a sandbox is shown of the person's own: each is a mount, of some 20 µs; people have ten."""

PATH_PROGRAMS = 5000
"""Programs of one directory of the PATH whose links and first lines are looked at: the largest systems have 3,000."""

PATH_LINKS = 16
"""Links on the way to a program; more is a circle."""

PATH_FIRST_LINE = 256
"""Bytes of a script's first line: the kernel reads as many."""

TMP_BYTES = 4 << 30
"""Size of a sandbox's /tmp, which is memory; counted by the memory limit as well where there is one."""

# -- portal ------------------------------------------------------------------------------------------------

HEAD_BYTES = 64 << 10
"""Largest head of a request: a token and a few headers take two kilobytes."""

HEAD_TIMEOUT = 30.0
"""A connection on which no request arrives; runners open theirs when they have something to say."""

DIAL_TIMEOUT = 15.0
"""Name look-up and TCP connect to the outside, per address; longer than three lost SYNs."""

SPLICE_HIGH_WATER = 256 << 10
"""Bytes waiting for a slow reader before its peer is paused (per direction)."""

MODEL_CONNECT_TIMEOUT = 15.0
"""Reaching a model provider; the agent tries again by itself."""

MODEL_IDLE_TIMEOUT = 900.0
"""Silence of a model provider: a reasoning model may think for many minutes before its first word."""

MODEL_POOL = 64
"""Connections to model providers at once, over all sandboxes."""

MODEL_KEEP_ALIVE = 60.0
"""An idle connection to a provider: covers the pauses between the steps of a turn and saves a TLS handshake in each."""

BODY_CHUNKS = 32
"""Chunks (≤ 256 KiB each) of a request's body that wait for who takes them before the sandbox is held back."""

LINGER = 2.0
"""A refusal that came before the whole request had: for the sender to finish a chunk and read why."""

OBJECT_BYTES = 64 << 20
"""One object of a sandbox: its work at the end of a turn, a patch and a conversation, mostly below one megabyte. Every
turn leaves one, so that a larger one would soon fill the store."""

OBJECT_IDLE = 30.0
"""Between two pieces of an object: a runner writes them as fast as they are taken, unless it was stopped."""

OBJECT_STORE_WAIT = 5.0
"""For the portal's first connection to the broker, when a sandbox is faster; it is made in some milliseconds."""

EPOCH_BATCH = 1000
"""Requests of sandboxes read at a time: after a start there is one of every session."""

RELEASE_CUT = 5.0
"""Between a sandbox's release and the cut of what it has open: TERM_GRACE and what the controller needs besides."""

GATEWAY_DIAL = 2.0
"""To connect to a gateway: a unix socket answers at once, unless its owner was stopped and its backlog is full."""

GATEWAY_HOLD = 12.0
"""A new connection waits so long for a gateway that is away: one that was killed is back in one to seven seconds
(measured), and people wait longer for a page without going away."""

GATEWAY_HOLD_POLL = 0.1
"""Between two attempts meanwhile, each of some microseconds."""

HELD = 256
"""Connections to one sandbox that may wait at once: browsers open six each, and come again."""

AWAY_RETRY = 2
"""Whole seconds until who has waited in vain should come again."""

TUNNEL_PORTS = 64
"""Ports of one session's tunnels: as many as a gateway has tunnels. What lies in a gateway's folder is the agent's to
say, so the number is kept here as well."""

GATEWAY_LOOK = 1.0
"""Between looks at which sandboxes there are: how long a port outlives its sandbox, and how soon one is back after a
restart. A look at a folder takes microseconds."""

GATEWAY_CONNECTIONS = 1024
"""Connections to one sandbox at once: VS Code and some terminals in a few browsers take dozens."""

GATEWAY_BACKLOG = 128
"""Connections to one sandbox that wait to be accepted: a page that loads opens six."""

KNOWN_PORTS = 1000
"""Sessions whose port is remembered: more than a machine has sandboxes in weeks."""

SWEEP_EVERY = 3600.0
"""Between looks at saved work that nothing needs any more: a turn leaves one piece, and a busy session has some dozens
of turns in that time. A look costs a list of all objects and a question for each session that saved something since."""

SWEEP_RAREST = 30 * 24 * 3600.0
"""A month: longer than that is a mistake in writing."""

SWEEP_JITTER = (0.5, 1.5)
"""Times SWEEP_EVERY: portals that were started together do not look together."""

SWEEP_LEAST = 2
"""Pieces of saved work of one session about which nobody need be asked: the ledger keeps the latest two in any case."""

SWEEP_MOST = 2000
"""Objects deleted in one look, some milliseconds each: the rest has time, and the store has other work."""

SWEEP_PAUSE = 0.05
"""Between two questions to the ledger, each of which reads a session's turns from the archive: people go first."""
