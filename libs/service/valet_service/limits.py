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

OUTBOX_WINDOW = 1024
"""Unacknowledged publishes in flight: beyond a few hundred throughput no longer grows (measured), and a resend is small."""

OUTBOX_QUEUE = 65_536
"""Events waiting in an outbox before its writer is held back: about 30 s of a fast model while the broker restarts."""

OUTBOX_RECONNECT_MAX = 2.0
"""Longest pause between an outbox's connection attempts."""

DUPLICATE_WINDOW = 300.0
"""How long the broker remembers event ids: longer than any restart after which a writer sends again."""

MAX_EVENT_BYTES = 4 << 20
"""One event: the broker takes 8 MiB; the writers cut outputs and patches far below this."""

READER_HEARTBEAT = 2.0
"""Idle heartbeat of a log reader: silence for three of them means the consumer is gone."""

READER_BUFFER_BYTES = 32 << 20
"""What a log reader holds undelivered before flow control stops the broker."""

PULL_EXPIRES = 20.0
"""A durable reader's waiting pull; renewed at once after a reconnect, so its length costs nothing."""

PULL_BATCH = 256
"""Messages asked for in one pull."""

ACK_WAIT = 15.0
"""Redelivery of an unacknowledged message: longer than any handler between two signs of progress."""

DATABASE_CONNECT_TIMEOUT = 5.0
"""One attempt to reach PostgreSQL."""

DATABASE_COMMAND_TIMEOUT = 20.0
"""One statement: the largest batch takes well under a second."""

DATABASE_RETRY_WAIT = 0.2
"""Between attempts while PostgreSQL restarts."""

STOP_GRACE = 4.0
"""A service's own time to stop in order; the supervisor allows 5."""
