"""Every limit and time-out of the service library, each with its reason. Seconds unless the name says otherwise."""

CONNECT_TIMEOUT = 2.0
"""One attempt to connect to the broker: it is near, so a longer wait only hides that it is down."""

RECONNECT_WAIT = 0.1
"""Between attempts to reach the broker: recovery is to take ≤ 10 s, and an attempt costs little."""

PUBLISH_TIMEOUT = 5.0
"""An acknowledgement not here by then is lost, not late: measured p99 is below 1 ms."""

REQUEST_TIMEOUT = 10.0
"""A request between services: covers one restart of the service that answers (≤ 5 s) and some of the retry."""

REQUEST_RETRY_WAIT = 0.1
"""Between attempts while nobody serves a subject (the service is restarting)."""

OUTBOX_WINDOW = 256
"""Unacknowledged publishes in flight: beyond a few hundred throughput no longer grows (measured), a resend is small,
and forty writers at once stay below the 10,000 messages a stream buffers before it refuses some of them."""

OUTBOX_QUEUE = 65_536
"""Events waiting in an outbox before its writer is held back: about 30 s of a fast model while the broker restarts."""

OUTBOX_RECONNECT_MAX = 2.0
"""Longest pause between an outbox's attempts: against a broker that is away, or is there and refuses."""

OUTBOX_CONNECT_TIMEOUT = 10.0
"""All of one connection attempt, through the portal and its own retries: only a guard against one that hangs."""

DUPLICATE_WINDOW = 300.0
"""How long the broker remembers event ids: longer than any restart after which a writer sends again."""

MAX_EVENT_BYTES = 4 << 20
"""One event: the broker takes 8 MiB; the writers cut outputs and patches far below this."""

READER_HEARTBEAT = 2.0
"""Idle heartbeat of a log reader: silence for three of them means the consumer is gone."""

READER_BUFFER_BYTES = 32 << 20
"""What a log reader holds undelivered before flow control stops the broker."""

READER_ENTRY_BYTES = 400
"""What an entry costs in memory besides its payload, so that many small ones count for what they take."""

CONSUMER_TIMEOUT = 10.0
"""Making a consumer: the broker counts what is pending, which takes longer on a large log."""

CUT_POLL = 0.25
"""Between looks at whether a connection was cut and is back: well below what a person notices as a stall."""

PULL_EXPIRES = 20.0
"""A durable reader's waiting pull; renewed at once after a reconnect, so its length costs nothing."""

PULL_BATCH = 256
"""Messages asked for in one pull."""

ACK_WAIT = 2.0
"""Redelivery of what a crashed reader had in hand: a service is to be at work again within five seconds, and this is
where most of that went (measured). A living one reports progress three times as often; one that is held up for longer
gets it twice, which handlers expect."""

HANDLER_RETRY_WAIT = 1.0
"""Before a message whose handler failed is handed to it again."""

DATABASE_CONNECT_TIMEOUT = 5.0
"""One attempt to reach PostgreSQL."""

DATABASE_IDLE = 15.0
"""A connection nobody used for that long is let go: each is a process of PostgreSQL's with 15 to 20 MB, and a new one
is there in some 5 ms."""

DATABASE_COMMAND_TIMEOUT = 20.0
"""One statement: the largest batch takes well under a second."""

DATABASE_RETRY_WAIT = 0.2
"""Between attempts while PostgreSQL restarts."""

OBJECT_CHUNK_BYTES = 128 << 10
"""One message of an object: what every client of NATS's object store uses."""

OBJECT_WINDOW = 8
"""Chunks of one object on their way to the broker: a megabyte, so that an upload waits for no single answer."""

OBJECT_TIMEOUT = 10.0
"""One answer of the object store. A broker restart is over by then; a remote store takes milliseconds."""

OBJECT_ATTEMPTS = 5
"""How often a request to the object store is repeated while the broker restarts (with OBJECT_RETRY_WAIT between)."""

OBJECT_RETRY_WAIT = 0.5
"""Between those attempts: five of them outlast a restart of the broker (≈ 1 s)."""

S3_PART_BYTES = 5 << 20
"""One part of an upload in parts; S3 allows none smaller. A smaller object goes in a single request."""

S3_PARTS_AT_ONCE = 2
"""Parts of one object on their way: bounds its memory to some 15 MiB."""

S3_TRANSFER_TIMEOUT = 120.0
"""One request, its body included: a part of 5 MiB over a slow line (0.5 Mbit/s)."""

S3_RETRY_TIMEOUT = 15.0
"""How long a failing request is repeated in all."""

REQUEST_ID_CHARACTERS = 100
"""Longest id of a request: a ULID has 26, a UUID 36; what is longer is not an id."""

STOP_GRACE = 4.0
"""A service's own time to stop in order; the supervisor allows 5."""

STOP_KILL = 0.5
"""What a service that overran its grace gets to clean up once cancelled."""

TEST_BROKER_START = 10.0
"""A test's own NATS server starts in 40 ms; on a busy machine in some more."""
