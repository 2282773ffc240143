"""Every limit and time-out of the runner, each with its reason. Seconds unless the name says otherwise."""

# -- the runner itself

SPEC_TIMEOUT = 60.0
"""For the spec on standard input: who starts the runner writes it at once; nothing comes where nobody does.
Long, because the machine may be busy."""

# -- OpenCode: the process

START_TIMEOUT = 60.0
"""From its start to healthy: measured 2.2–2.9 s alone on 2 cores; the rest is for a machine under load. Doubled with
each try."""

START_TIMEOUT_MAX = 240.0
"""For one try, however busy the machine: with 20 other programs to each core a start has taken more than 120 s
(seen)."""

START_PROGRESS = 0.1
"""Seconds of processor time within one time-out that show that a program gets on: OpenCode's whole start takes 1.6 s of
it (measured), and one that hangs uses none."""

PROBE_TIMEOUT = 1.0
"""One health probe: a request in the half second after `listen` is accepted and never answered (measured)."""

PROBE_WAIT = 0.05
"""Between two probes."""

RESTART_WAIT = 0.2
"""Before the first restart; doubled each time."""

RESTART_WAIT_MAX = 5.0
"""Longest pause between restarts."""

RESTART_RESET = 30.0
"""An OpenCode that lived this long was well: the next restart is quick again."""

FIRST_STARTS = 3
"""How often a start is tried before the boot counts as failed."""

STOP_GRACE = 1.5
"""Between SIGTERM and SIGKILL: its orderly end takes up to 2.3 s (measured), but its store survives a kill, and whoever
stops the sandbox waits 3 s in all."""

LOOK_EVERY = 5.0
"""How often a running OpenCode is probed."""

HANG_TIMEOUT = 60.0
"""Without an answer to any probe: a burst of 20,000 tokens keeps it busy for 13 s (measured), nothing for a minute."""

LAST_WORDS_BYTES = 4096
"""How much of OpenCode's output is kept to say why it ended."""

# -- OpenCode: requests

REQUEST_TIMEOUT = 10.0
"""An ordinary call: all are answered in milliseconds, the first for a directory in under a second (measured)."""

PROMPT_TIMEOUT = 20.0
"""`prompt_async`: it answers when the prompt is stored; git snapshots of a large workspace may be ahead of it."""

READY_TIMEOUT = 25.0
"""How long a prompt waits for an OpenCode that is being restarted."""

RENEW_TIMEOUT = 240.0
"""How long a turn that OpenCode broke off waits for the next OpenCode: one slow start (START_TIMEOUT_MAX), and less
than the five minutes of silence after which the ledger takes the runner to hang."""

# -- OpenCode: its stream of events

STREAM_SILENCE = 25.0
"""Heartbeats come every 10 s (measured): after two missed ones the stream is dead."""

STREAM_RETRY_WAIT = 0.1
"""Between attempts to open the stream."""

STREAM_READ_BYTES = 1 << 18
"""One read; frames themselves have no limit (inputs and patches make hundreds of KB)."""

# -- turns

SETTLE_POLL = 0.05
"""Between looks at a session that is idle but whose last message is not whole yet (measured after an abort: 10 ms)."""

SETTLE_MAX = 3.0
"""After that the turn ends with what there is."""

BEGIN_MAX = 20.0
"""The same while there is nothing at all: OpenCode has the prompt and does not yet say that it is busy. It makes a git
snapshot first, as with PROMPT_TIMEOUT."""

ABORT_REPEAT = 1.0
"""An abort that reaches OpenCode before the run has begun does nothing, so it is repeated."""

ABORT_GRACE = 8.0
"""After that OpenCode is killed and restarted; the ledger gives up on the runner after 15 s."""

WATCH_EVERY = 30.0
"""A running turn is compared with OpenCode's own state so often, should an event have been lost without a trace. The
same look is the turn's pulse, which the ledger wants at least every 60 s."""

PULSE_AFTER = 20.0
"""A turn that has said nothing for so long at a look says that it goes on: with the time between two looks that is
every 50 s at worst. Deltas do not count, the ledger does not fold them."""

SHELL_TIMEOUT = 1800.0
"""A person's shell command: builds and test runs take minutes; a server that never ends would hold the queue up."""

CALL_LOST_WAIT = 3.0
"""After a blocking call of OpenCode broke off: the end of its process, if that is why, is noticed within this time."""

# -- failover

ATTEMPTS_MAX = 16
"""Models tried in one turn: nobody names more, and each has its own message ids, all of which are looked for."""

RETRIES_BEFORE_SWITCH = 2
"""Times OpenCode may announce another try of the same model while there is a next one: the first try again comes after
2 s, the second after 4 s (measured); what is still broken then is for the next model."""

SWITCH_PAUSE = 0.5
"""Between the end of a failed try and the next model's: OpenCode says some errors twice, the second time after it is
idle (measured), and that must not count against the next model."""

RETRY_WAIT_MAX = 20.0
"""A provider that asks for a longer wait than this is left for the next model at once."""

# -- commands and reviews

COMMAND_RESULTS = 32
"""Results of commands remembered, so that one that comes again gets the same: only those of the last minutes do."""

COMMAND_DESCRIPTION_CHARS = 300
"""Description of a slash command in a list: a skill's is a page long, people choose by the first line."""

REVIEW_FILES = 200
"""Files named in a review's prompt; the agent finds more by itself."""

REVIEW_ASKS = 2
"""How often the agent is asked for a review's findings when its answer cannot be read: shown what is wrong with it, a
model mends it at once or not at all, and each time costs the whole conversation's tokens."""

REVIEW_TRIES = 200
"""Braces in an answer at which JSON is looked for: it stands at the first, or behind some code in the text."""

REVIEW_LINE_MAX = 1_000_000_000
"""Greatest line of a finding: what is above is made up, and databases and browsers cannot hold every number."""

REVIEW_SAID_CHARS = 16_000
"""Of an answer that is no review, in the turn's error: longer than findings are; the message itself has all of it."""

# -- what goes into events

TOOL_OUTPUT_CHARS = 32_000
"""A tool's output in an event, its end: what a person looks at; the model got it all."""

TOOL_OUTPUT_RATE = 65_536
"""Characters per second of cumulative output while a tool runs: each update repeats all before it."""

TOOL_STRING_CHARS = 64_000
"""One string in a tool's input or metadata."""

TOOL_FIELD_BYTES = 256_000
"""All of a tool's input, and all of its metadata."""

PATCH_BYTES = 512_000
"""A session's patch in an event; the workspace has the whole."""

PATCH_FILES = 5_000
"""Files listed with their counts: ~100 bytes each keeps the event far below the broker's limit."""

# -- git

CLONE_TIMEOUT = 1800.0
"""A large repository over a slow line."""

GIT_TIMEOUT = 30.0
"""Any other git command."""

SUBMODULES_TIMEOUT = 600.0
"""All submodules of a repository together: a session can begin without them."""

LFS_TIMEOUT = 600.0
"""Likewise for its files in Git LFS."""

CHECKOUT_WORDS = 300
"""Characters of git's words in a boot step's detail: its last ones say why."""

ATTRIBUTE_FILES = 1_000
"""`.gitattributes` looked at for Git LFS: where it is used, the first one nearly always names it."""

ATTRIBUTE_BYTES = 1 << 16
"""Of each: a line names a pattern, some dozen are usual."""

# -- relay

RELAY_CONNECT_TIMEOUT = 5.0
"""Reaching the portal's socket and its answer to `CONNECT`: it is on the same machine, but may be restarting."""

RELAY_HEAD_BYTES = 65_536
"""Head of a request that passes the relay."""

RELAY_BUFFER_BYTES = 1 << 20
"""What waits for a slow reader before the other side is held back."""

# -- the sandbox's other services

SERVICE_START_TIMEOUT = 30.0
"""Until the gateway or the process service says that it serves: half a second of Python's start alone; the rest is for
a machine under load."""

SERVICE_START_TIMEOUT_MAX = 120.0
"""Likewise, while it uses processor time: beginning again takes longer than waiting (seen)."""

SERVICE_STOP_GRACE = 2.0
"""Between SIGTERM and SIGKILL: both promise to end within this time."""

TOOLS_WAIT = 5.0
"""How long taking the workspace in waits for the gateway, behind which the agent's tools are: both start at the same
time as OpenCode, which takes longer. Without it the tools are connected later."""

CONTROL_TIMEOUT = 5.0
"""One request to the gateway's control socket: it only remembers what it is told."""

WRITERS_EVERY = 2.0
"""How often it is asked who may be in the sandbox where others than the owner may, beside each time a fact says that
it has changed: a fact waits behind a prompt that waits for OpenCode, and sessions above this one have facts of their
own. One question costs the ledger about a millisecond."""

WRITERS_ALONE_EVERY = 30.0
"""Likewise where only the owner may."""

WRITERS_TIMEOUT = 10.0
"""For one such question; it is asked again until there is an answer."""

CONTROL_RETRY_WAIT = 0.5
"""Before the gateway is told again what it did not take."""

ON_DEMAND_START_TIMEOUT = 20.0
"""Until a service answers that is started for its first visitor: code-server takes up to 1.5 s, the desktop 0.9 s
(measured); a browser waits this long for a page."""

ON_DEMAND_PAUSE = 5.0
"""After a failed start, before the next visitor makes another: a page in a browser asks many times a second."""

ON_DEMAND_POLL = 0.02
"""Between looks whether a socket is listened on."""

DOOR_HEAD_TIMEOUT = 5.0
"""For the head of a visitor's request: the gateway sends it at once."""

DOOR_PATIENCE = 2.5
"""How long a browser's page waits for a service that starts before it shows that, and comes again: an editor alone
takes 0.6 to 1.8 s (measured), and a page that flickers is worse than one that takes that long."""

DOOR_RETRY = 2
"""Whole seconds after which who came too early is told to come again."""

EDITOR_UNUSED = 3 * 3600.0
"""An editor to which nobody has been connected for so long is ended: it holds 180 to 420 MB (measured). VS Code itself
gives a window that is disconnected up after three hours, with the commands in its terminals; nothing is lost sooner."""

UNUSED_POLL = 60.0
"""Between looks whether somebody is connected: milliseconds each, and the end need not be exact."""

UNUSED_LAST_LOOK = 1.0
"""Between closing the way to an unused service and its end: the gateway may just be passing somebody on."""

# -- processes

EVENTS_RETRY_WAIT = 0.2
"""Between attempts to follow the process service's events."""

EVENTS_SILENCE = 75.0
"""After this the stream of process events counts as dead: the service says something at least every 30 s."""

EVENTS_LINE_BYTES = 4 << 20
"""One event: the list of all processes with their arguments."""

SHOWN_OUTPUT_BYTES = 30_000
"""Of a process's output as much is shown to the agent, its end: OpenCode's own limit for a command's output."""

SHOWN_PROCESSES = 20
"""Ended processes that wait for the agent's next prompt; of more, the oldest are left out."""

SHOWN_TIMEOUT = 10.0
"""Reading an ended process's output from the process service."""

# -- platform

ATTACH_TIMEOUT = 10.0
"""One request to attach; repeated until it is answered."""

FLUSH_TIMEOUT = 2.5
"""At stop, for events not yet stored: the sandbox is ended after 3 s."""

DISCONNECT_TIMEOUT = 0.5
"""Saying goodbye to the broker: by then everything is stored, or will not be."""

MCP_TIMEOUT_MS = 90_000
"""How long OpenCode waits for one of our tools, milliseconds: longer than the longest tool (60 s), so that the agent
gets our refusal and not a time-out of its own."""
