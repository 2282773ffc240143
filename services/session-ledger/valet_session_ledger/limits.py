"""Every limit and time-out of the ledger, each with its reason. Seconds unless the name says otherwise."""

FOLD_BATCH = 250
"""Log entries folded between two looks at the loop: about 5 ms of work, so that neither commands nor the answers of
PostgreSQL wait for longer."""

WRITE_BATCH = 2000
"""Events projected in one transaction: unnest upserts gain nothing beyond some hundreds (measured), and a
transaction stays well below a second."""

STATEMENT_CHARACTERS = 14_000
"""Of statements that are sent as one: asyncpg keeps those up to 15 KB prepared (its usual limit)."""

STATEMENTS_KEPT = 256
"""Such statements, one for each set of tables that a batch has rows for: some dozens in practice."""

BACKLOG = 50_000
"""Folded events that wait for PostgreSQL before reading stops: minutes of a busy installation, tens of MB."""

LIVE_SESSIONS = 10_000
"""Session states kept in memory: some kB each. Older ones are read back from their snapshot."""

LOADED_AT_START = 2_000
"""Sessions brought into memory at start, so that their turns go on even if PostgreSQL goes away."""

APPEND_TIMEOUT = 2.0
"""One attempt to append; measured p99 is below 1 ms, so silence means the broker is restarting."""

APPEND_DEADLINE = 8.0
"""All attempts to append together: less than the requester waits, so that it hears why."""

APPEND_RETRY_WAIT = 0.1
"""Between attempts while the broker is away."""

FOLD_WAIT = 8.0
"""How long a command waits until the fold has reached what made it stale."""

PROJECTED_WAIT = 9.0
"""How long a reply waits for the read model: a restart of PostgreSQL takes ≤ 5 s; the requester gives up at 10."""

FRESH_WAIT = 2.0
"""How long a read waits for the read model to reach what is in the log: milliseconds in fact; a stale answer is better
than none after that."""

DATABASE_WAIT = 6.0
"""How long a read on behalf of a requester waits for PostgreSQL: a restart takes ≤ 5 s."""

DECIDE_ATTEMPTS = 20
"""Conflicts in a row before a command gives up: each one means somebody else got a fact in."""

REACT_RETRY_MS = 1000
"""Until react is evaluated again after an append whose outcome is unknown (ms)."""

QUEUED_PROMPTS = 100
"""Prompts one session may have waiting: beyond this somebody's loop is broken."""

QUEUED_CHARACTERS = 8 << 20
"""Characters of all waiting prompts of a session together: they are part of its snapshot."""

COLLECT_QUIET_MS = 1500
"""Prompts to be collected wait this long for the next one: a person who writes several short messages sends them faster
than that, one who waits for an answer hardly notices."""

COLLECT_LONGEST_MS = 10_000
"""From the first of some collected prompts to their turn, however fast more of them come."""

COLLECTED_CHARACTERS = 500_000
"""Characters of prompts collected into one turn: its event stays below the 4 MiB of one event however they are
escaped."""

COLLECTED_ATTACHMENTS = 50
"""Attachments of prompts collected into one turn: beyond this models refuse them."""

RECEIPTS = 256
"""Prompts whose repetition is recognised from memory; older ones are looked up in the read model."""

ANSWERS = 64
"""Answered questions whose repetition is recognised."""

ATTACH_DEADLINE_MS = 90_000
"""From the request for a sandbox (and again from its provisioning) to its runner's attaching: a cold start with
the agent's download takes well under this."""

READY_DEADLINE_MS = 900_000
"""From the runner's attaching to its being ready: it clones the repository in between, which may be large."""

INTERRUPT_DEADLINE_MS = 15_000
"""How long a runner has to end a turn it was asked to end."""

SILENT_MS = 300_000
"""A runner that has had a turn for this long without a word is taken to hang. While a turn runs it says something at
least every minute, so four signs in a row are missing."""

SIGHT_EVERY = 10.0
"""Between looks at the log, one small request each, seconds."""

SIGHT_GAP_MS = 45_000
"""So much time without a look that succeeded, and what a runner said may not have come: three looks missed, and one
that took long. Silence counts anew from the end of such a gap: the runner has SILENT_MS to connect and be heard."""

HEARD_STEP_MS = 30_000
"""How much newer a runner's word must be to be noted: the state changes twice a minute because of it and no more, and
the deadline above is wrong by a tenth at most."""

COMMAND_DEADLINE_MS = 60_000
"""From a command to its result: a hibernated sandbox is back within half of it, the command itself takes seconds."""

PENDING_COMMANDS = 10
"""Commands of one session that wait for their result: turns wait for them."""

COMMAND_RECEIPTS = 64
"""Commands whose repetition is recognised from memory; older ones are looked up in the read model."""

CHILD_DEPTH = 3
"""Sessions above a session, at most: an agent, those it directs, and their helpers. Deeper trees are agents that hand
their task on instead of doing it."""

LIVING_CHILDREN = 10
"""Children of one session that have not ended: each is a sandbox and an agent that costs money, and nobody reads the
answers of more."""

LIVING_IN_TREE = 30
"""Sessions of one tree that have not ended, counted in the read models: what a few agents may start before a person
looks. Spawned in the same moment, a few more may pass."""

FORKS_OF_FORKS = 100
"""Forks, each made of the one before, through which a picture is looked for: two reads by their index for each, and
nobody forks so often."""

ENDED_CHILDREN = 200
"""Children that have ended whose request is recognised when it comes again: it comes within a minute."""

HOPS = 100
"""Prompts of agents in a row, each caused by the one before, since a person last said something. Whoever directs
children through a long task needs some dozens; two agents that only answer each other always need one more."""

COMPLETIONS = 8
"""Requests to complete a session that are recognised when they come again, likewise."""

NEWS = 50
"""Things a parent has not been told yet: they wait only while its ledger is away. The oldest are given up."""

NEWS_CHARACTERS = 4_000
"""Of what a parent is told of one change: enough to act on; the rest is read in the child's messages."""

SPAWN_WAIT = 20.0
"""How long an agent that spawns a child waits until it is there: milliseconds in fact. After that it is told of it all
the same, because it is certain."""

PEER_WAIT = 12.0
"""What is asked of another ledger: a little more than it may wait for PostgreSQL."""

TITLE_CHARACTERS = 80
"""Of a title made from a prompt: what a list shows in a line."""

FORWARDED_MESSAGES = 50
"""Messages forwarded in one prompt: more than an agent chooses one by one."""

FORWARDED_CHARACTERS = 64_000
"""Of messages forwarded in one prompt: as much as a prompt that an agent writes may have."""

MESSAGE_CHARACTERS = 8_000
"""Of each message that an agent reads of another session: several of them go into its context at once."""

IMPORT_DEADLINE_MS = 3_600_000
"""From the first page of an import to its last: a hundred thousand events take minutes. One that was given up ends as
a failed session instead of an empty one that takes no prompts."""

PARTICIPANTS = 100
"""People who take part in one session, besides its owner."""

SHARE_LINKS = 50
"""Valid share links of one session."""

POLICY_RULES = 200
"""Permission rules of one session: each permission is held against all of them."""

POLICY_RULE_CHARACTERS = 1000
"""Of one permission rule: a path, or the beginning of a command. All rules are part of the session's snapshot."""

LATE_QUESTION_CHARACTERS = 4_000
"""Of each question and each answer in the prompt that answers a question of a lost turn: enough to know it again."""

QUESTION_LONGEST_MS = 366 * 24 * 3600 * 1000
"""The longest a question waits, whatever a session was created with: nothing ever waits for ever."""

RECOVERIES = 3
"""New sandboxes in a row, none of whose runners became ready, before the session has failed."""

RECOVERY_PAUSE_MS = 1000
"""Pause before the second recovery in a row; doubles with each. The first is immediate."""

TURN_LOSSES = 3
"""Runners lost between a turn's dispatch and its start before the turn itself is taken for the cause."""

PLATFORM_STOP_HOLD_MS = 10_000
"""A session hibernated because the platform stops is not brought back before this: stopping takes ≤ 10 s, and
a sandbox requested meanwhile would miss its deadline."""

PURGE_BELOW = 500
"""Events that wait to be projected while deltas are still purged: with more, catching up comes first."""

PURGE_PAUSE = 2.0
"""Between two purges of deltas: nobody waits for them, and each costs the broker 14–27 ms with 1,100 sessions."""

POISON_WAIT = 5.0
"""Between attempts when PostgreSQL refuses a write for a reason that is neither its absence nor the data."""

PAGE = 200
"""Most items of a page, whatever was asked for."""

ARCHIVE_PAGE = 2000
"""Most archived events in one reply."""

ARCHIVE_PAGE_BYTES = 4 << 20
"""Most bytes of archived events in one reply: the broker takes messages of 8 MiB."""

MESSAGE_PAGE_BYTES = 4 << 20
"""Most bytes of texts and outputs in one page of messages, for the same reason."""

POOL = 4
"""Database connections: one projects, the others read."""

REBUILD_BATCH = 5000
"""Events read and folded at once while rebuilding."""

REBUILD_SILENCE = 30.0
"""How long a rebuild waits for the next event of a stream that says it has more."""

GC_THRESHOLD = (20_000, 20, 20)
"""Objects made between two runs of the garbage collector: a fold makes many that live as long as their batch, and
looking at them again and again costs a tenth of its time (measured)."""

PUT_BACK_PAGE = 2000
"""Archived events read at once while they are put back: some MB."""

PUT_BACK_CHUNK = 500
"""Messages put back and acknowledged together: a few hundred in flight give all the throughput there is (measured),
and this many are compared one by one after a cut."""

PUT_BACK_BYTES = 4 << 20
"""Bytes put back together: well below what the broker buffers for a stream."""

PUT_BACK_WAIT = 3600.0
"""How long a ledger waits for another one that puts events back: some tens of thousands of them take a second."""

PUT_BACK_SAY = 5.0
"""Between two log lines that say how far putting back has come."""

IMPORT_EVENTS = 200_000
"""Lines of an import: some times the longest session there is; each is a fact of the new session."""

IMPORT_PAGE = 5_000
"""Lines of one page: appended one after the other they take about a second."""

IMPORT_EVENT_BYTES = (4 << 20) - (64 << 10)
"""One line of an import: an event's limit, less what wraps it."""

IMPORTS_REMEMBERED = 1_000
"""Imports under way whose place is kept in memory; the place of others is read from their log again."""

RUNNING_PROCESSES = 100
"""Running processes in a session's view, the latest: nobody reads a longer list, and `/v1/processes` has them all."""

ENDED_PROCESSES = 20
"""Ended ones, the latest, likewise: what somebody looks for has just ended."""

PROCESS_CHARACTERS = 2_000
"""Of a process's arguments in a view: a command as people type it; a whole script is cut."""

PROCESS_ARGUMENTS = 100
"""How many of them, likewise."""

NESTED_MESSAGES = 50
"""A sub-agent's messages under its tool call in a page: what one reads at a glance; the others are asked for."""

NESTED_AT_ONCE = 300
"""Messages of sub-agents under one page's tool calls together: read at once, some MB."""

NESTED_PAGE_BYTES = 2 << 20
"""Their bytes: with those of the page itself they stay below the 8 MiB of one reply."""

NESTED_DEPTH = 4
"""Sub-agents below sub-agents in one page; deeper ones are asked for by their conversation. OpenCode's own have none
below them."""

LATEST_WORK = 2
"""Saved work that is kept in any case: the latest, and the one before, should the latest turn out to be damaged."""

FORKABLE_TURNS = 20
"""Latest turns at whose messages a fork has the files as they were: a day of work. Saved work may have hundreds of MB a
turn; at older messages a fork has the conversation and the repository."""

FORK_WAIT = 60.0
"""How long a fork's requester waits for it: beyond that it asks again and finds it further on."""

SOURCE_PAGE = 2_000
"""Archived events of one session read at once: some MB."""

HISTORIES_AT_ONCE = 2
"""Pasts folded at the same time: each takes some µs of the loop for every event, and tens of MB for a long session."""

HISTORY_DEADLINE = 9.0
"""How long a past may take to be folded: its requester waits no longer. Some hundreds of thousands of events."""
