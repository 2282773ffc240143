"""Every limit and time-out of the API, each with its reason. Seconds and bytes unless the name says otherwise."""

BODY_BYTES = 1 << 20
"""Largest request body: a prompt of a million characters is a file, and events are limited to 4 MiB."""

HEADER_BYTES = 64 << 10
"""All headers of a request together: browsers and proxies stop at 8-64 KiB."""

HAND_OVER_WAIT = 5.0
"""For the event bus to take a connection: it is back within 5 s of a crash."""

HAND_OVER_RETRY = 0.05
"""Between attempts meanwhile."""

IDENTITY_FRESH = 60.0
"""How long a token is believed without asking the database: also the longest a revoked one lives on."""

IDENTITY_STALE = 600.0
"""How long while the database is away: nobody can revoke a token then, and work goes on."""

IDENTITIES = 10_000
"""Remembered tokens: about 3 MB."""

DATABASE_WAIT = 5.0
"""For the database to come back during a request; it restarts within 5 s."""

DATABASE_RETRY = 0.1
"""Between attempts meanwhile."""

REPLY_KEPT = 24 * 3600.0
"""How long the answer to a request is given again for its Idempotency-Key, a day: who repeats a request does it within
minutes, a client that was off overnight the next morning."""

REPLY_BYTES = 4 << 20
"""Largest answer kept: what a service can reply with at all (8 MiB on the wire), and far above every usual one."""

REPLIES_SWEEP = 600.0
"""Between removals of answers that are too old: they are looked up by age anyway, this only frees their room."""

LEASE = 6.0
"""How long a request in flight holds its key without a sign of life: a crashed api is back within 5 s."""

LEASE_RENEWAL = 1.5
"""Between signs of life: two may be lost."""

LEASE_WAIT = 12.0
"""How long a repetition waits for the first one's answer: longer than `LEASE`, so that it takes over from a crashed one
instead of being refused."""

LEASE_LOOK = 0.1
"""Between looks meanwhile."""

ATTACHMENT_BYTES = 50_000_000
"""Largest attachment, 50 MB: half an hour of audio or a large PDF; what is bigger belongs into the repository."""

ATTACHMENTS = 20
"""Attachments of one prompt: models take that many images at most."""

NAME_CHARACTERS = 200
"""Of an attachment's name; file systems take 255 bytes."""

IMPORT_BYTES = 512 << 20
"""Largest import: a session of a hundred thousand events has about 200 MB."""

IMPORT_MEMORY = 1 << 20
"""Of an import in memory; what is more lies in a temporary file until all of it is known to be right."""

IMPORT_FILES = 10_000
"""Files of an import: what is known of each is kept in memory, some hundred bytes."""

PIECE_BYTES = 192 << 10
"""Of a file in one line of an export: 256 KiB in base 64, far below what a line may have."""

EXPORT_FILES_BYTES = 320 << 20
"""All files of an export: in base 64 and with their events they stay below IMPORT_BYTES."""

WORK_BYTES = 64 << 20
"""Saved work in an import: what runners save and take at most."""

CONTEXT_CHARS = 24_000
"""Of a conversation, its latest part, for an agent that does not remember it: some 6,000 tokens, as in the runner."""

CONTEXT_MESSAGE_CHARS = 4_000
"""Of one message of it."""

CONTEXT_MESSAGES = 400
"""Messages of it: of shorter ones nobody needs more."""

CONTEXT_CHANNELS = 100
"""Conversations of an import that are told: the agent is asked on one or two of them again."""

IMPORT_PAGE_BYTES = 500_000
"""Events handed to the ledger at once: a few milliseconds of its time, far below the broker's 8 MiB."""

IMPORT_PAGE_EVENTS = 500
"""Likewise, of small ones."""

IMPORT_TIMEOUT = 30.0
"""For the ledger to take one page: it appends every event of it."""

EXPORT_PAGE = 200
"""Archived events asked for at once; halved where their JSON does not fit into one reply."""

STATE_TIMEOUT = 30.0
"""For the ledger to fold a session up to an event: a hundred thousand events take a few seconds."""

FORK_TIMEOUT = 60.0
"""For the ledger to write a fork: it copies every event of the source up to the message."""

COPY_WAIT = 120.0
"""For the object store to copy what a fork starts from, 50 MB at most each: seconds, on a busy machine some more."""

COMMAND_WAIT = 30.0
"""How long a revert holds its reply: one that needs no new sandbox takes a second or two."""

COMMAND_WAIT_MOST = 60.0
"""Longest `?wait=`: every command has its result or has timed out after that."""

COMMAND_LOOK = 0.2
"""Between looks at a command that is waited for, at first."""

COMMAND_LOOK_LONGEST = 1.0
"""Likewise after some seconds."""

SANDBOX_TOKEN = 3600
"""How long a token for a sandbox is valid, an hour: a page opens further parts of the sandbox with it while somebody
works. Who is no longer a collaborator is out at once: the gateway is told."""

ENDPOINT_WAIT = 5.0
"""For the portal to open a sandbox's port, and for the log to say which tunnels there are: they take milliseconds, a
restart some seconds."""

READY_WAIT = 2.0
"""For each part that `/ready` asks: a part slower than this is not ready."""

DISK_RESERVE_BYTES = 512 << 20
"""Less free than this and what can wait is refused: new sessions, uploads. The rest is for the events of what runs."""

DISK_FULL_BYTES = 64 << 20
"""Less than this is as good as full: PostgreSQL wants 16 MB at a time for its log and NATS 8 MB."""

RETRY_AFTER = 2
"""What a client is told to wait after a 503: most restarts are over by then."""

STOP_GRACE = 2
"""For running requests when the service stops; the supervisor allows 5 s in all."""

KEEP_ALIVE = 75
"""An idle connection: longer than the 60 s for which load balancers keep theirs."""

BACKLOG = 2048
"""Connections waiting to be accepted: a thousand clients that reconnect at once are served, not refused."""

PAGE_SESSIONS = 200
PAGE_MESSAGES = 500
PAGE_PROMPTS = 500
PAGE_TURNS = 500
PAGE_NOTIFICATIONS = 200
"""Largest pages: a few hundred KB of JSON."""

TITLE_CHARACTERS = 200
REPO_CHARACTERS = 2048
BRANCH_CHARACTERS = 255
KEY_CHARACTERS = 200
CHANNEL_CHARACTERS = 128
VARIANT_CHARACTERS = 40
MODEL_CHARACTERS = 200
DISPLAY_NAME_CHARACTERS = 100
EMAIL_CHARACTERS = 254
PATTERN_CHARACTERS = 1000
ID_CHARACTERS = 200
"""Longest values taken; beyond these nothing is meant seriously."""

FALLBACKS = 5
"""Models to go on with: who has exhausted six providers has another problem than the seventh could solve."""

RULES = 100
"""Permission rules of a session: every one is looked at for every permission."""

QUEUE_IDS = 1000
"""Prompts named in one reordering: more than a queue may hold."""

NOTIFICATION_IDS = 1000
"""Notifications marked as read at once; `all` has no limit."""

TIMEOUT_LEAST = 1.0
"""Seconds a question or permission waits at least: a client needs some to be able to answer."""

TIMEOUT_MOST = 30 * 86_400.0
"""Likewise at most: 30 days; nothing waits for ever."""

LINK_LEAST = 60
"""Seconds a share link is valid at least: time to send it to somebody."""

LINK_MOST = 365 * 86_400
"""Likewise at most, a year; one without an end says so by leaving `expires_in_s` out."""
