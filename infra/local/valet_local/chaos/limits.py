"""Every number of a chaos run, with its reason. Seconds unless the name says otherwise."""

# -- what is planned

WARM_UP = 2.0
"""Before the first fault: every session has a prompt by then, so that something is there to be lost."""

ACT_GAP = 14.0
"""Mean pause between two actions of one client: with two clients a session, a new turn about every eight seconds,
which two processors with four agents can just follow; faster, and the queue is all that is tested."""

FAULT_GAP = (1.0, 4.0)
"""Between the end of a fault and the next one: enough for most recoveries to be seen alone."""

SECOND_FAULT = 0.2
"""Share of faults that are followed by another one within half a second: two at once is what nobody expects."""

PAUSE = (2.0, 10.0)
"""How long a process is stopped or a connection frozen. The longest is twice every heartbeat of the platform, and
half of what the broker needs to give a client up."""

FORKS = 2
"""Forks of a run at most: each is one more agent, with half a gigabyte and two seconds of processor time to start."""

SPAWNS = 2
"""Child sessions of a run at most, for the same reason."""

CHILD_LIFE = 25.0
"""Until a child is ended for good: it has worked by then, or its sandbox has not come yet."""

FORK_LIFE = 25.0
"""Until a fork is ended for good, its queue with it."""

CUT_OUT = 0.5
"""During a cut nobody gets through, so that the first attempt to come back fails as well."""

# -- how the parties behave

QUESTION_TIMEOUT = 6.0
"""Until a question nobody answers gets its default."""

ANSWER_SOON = 4.0
"""A person answers within that time: before the default, or about then."""

LINE_EVERY = 0.1
"""Between two lines of the program that a terminal shows: ten bytes each, so that its output is never so much that the
sandbox has to drop any."""

TERMINAL_RETRY = 0.5
"""Before a terminal asks again for the way in."""

TERMINAL_CONNECT = 8.0
"""To have a process, or a connection to it."""

TERMINAL_SILENCE = 15.0
"""A terminal on which nothing comes for that long is connected to anew: longer than the longest pause."""

TOOL_TIMEOUT = 5.0
"""One answer to an agent's tool."""

REQUEST_TIMEOUT = 20.0
"""One attempt of a request; the api itself gives up after ten seconds."""

REQUEST_RETRY = 0.3
"""Between attempts of a request that got no answer, or 503."""

REQUEST_PATIENCE = 90.0
"""How long a client repeats one request: longer than any fault and its recovery together."""

STREAM_CONNECT = 5.0
"""Until a stream's response has begun; then the client tries anew."""

STREAM_SILENCE = 35.0
"""A stream that says nothing, not even the comment that comes every 15 s, is dead."""

STREAM_RETRY = 0.1
"""Before a client that was cut comes back."""

TAP_SILENCE = 6.0
"""The reader of the raw log opens a new consumer after that: heartbeats come every second."""

# -- recovery

PROBE_EVERY = 0.2
"""A new attempt of a probe starts so often, whatever became of those before: the figures' grain."""

PROBE_TIMEOUT = 8.0
"""One attempt of a probe."""

RECOVERY_MOST = 180.0
"""A part that does not answer by then is not waited for any longer: that is a violation. Far above every target: on a
machine that is busy with something else an agent alone may take a minute to start."""

SERVICE_TARGET = 5.0
"""Kill of a service → it answers usefully."""

SERVER_TARGET = 10.0
"""Kill of the broker or the database → a command is answered."""

SANDBOX_TARGET = 30.0
"""Kill of a runner or agent → the next turn has started."""

# -- the end

START = 120.0
"""The platform to be ready; its first start unpacks OpenCode and makes the database."""

FIRST_TURN = 120.0
"""Every session's first turn, which starts all the agents at once."""

STANDSTILL = 90.0
"""After the faults, a session in which for so long no turn begins or ends, no prompt leaves the queue and no question
is settled does not move any more: a scripted turn takes seconds, a question that nobody answers six, and even a new
sandbox half a minute."""

REST = 1800.0
"""The longest that all of it may take: the queues may be long after an hour of faults."""

ARRIVE = 20.0
"""Clients have what is in the log."""

VERIFY = 180.0
"""`valet ledger rebuild --verify` of some ten thousand events, on a busy machine."""

STOP = 20.0
"""The platform promises to stop in ten."""

READ_LOG = 30.0
"""The whole log to be read."""

POLL = 0.1
"""Between two looks at something that another process changes."""

BETWEEN_TURNS = 15
"""How often something that is possible between two turns only is tried, a second apart: longer than two turns take."""
