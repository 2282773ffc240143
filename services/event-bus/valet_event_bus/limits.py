"""Every limit and time-out of the event bus, each with its reason. Seconds and bytes unless the name says otherwise."""

READ_EVENTS = 1024
"""Events taken from the log at once: the most that is joined into one flush."""

FLUSH_BYTES = 1 << 20
"""Payload written to a client in one go: a healthy client's buffer never grows by more than this between two looks."""

RECENT_EVENTS = 2048
RECENT_BYTES = 512 << 10
"""Last events kept of a watched session: bridges the time from the end of a history read to going live (a few
milliseconds) and lets a client that was cut resume without a read."""

HISTORY_EVENTS = 1000
HISTORY_BYTES = 512 << 10
"""One read of stored events: 25 ms of work at the measured 40,000 events a second, so nobody else waits long."""

HISTORY_ANSWER = 5.0
"""Until the broker has answered a read of stored events; then it is asked again."""

HISTORY_LOOK = 0.25
"""How often a waiting history read looks whether the connection was cut meanwhile, which loses its answer."""

ARCHIVE_EVENTS = 500
"""Events asked of the ledger's archive at once."""

RETRY_WAIT = 0.2
"""Between attempts while the broker or the ledger is away."""

BUFFER_HIGH = 256 << 10
"""Unsent bytes above which history is no longer read for a client: it takes what it can, nothing piles up."""

SLOW_CLIENT_BYTES = 4 << 20
"""Unsent bytes above which a client is too slow for its live session and is cut; it resumes from its cursor."""

KEEP_ALIVE = 15.0
"""Between two keep-alive comments on SSE: below the 30-60 s after which proxies cut idle connections."""

PING = 20.0
"""Between two WebSocket pings; a client silent for two of them is gone."""

WS_MESSAGE_IN = 64 << 10
"""Largest message taken from a client: requests are about a hundred bytes."""

WS_MESSAGE_OUT = 256 << 10
"""Largest joined message sent, except for a single larger event: common clients refuse more than 1 MiB."""

WS_SUBSCRIPTIONS = 256
"""Sessions one WebSocket may watch: more than any screen shows."""

ACCESS_FRESH = 30.0
"""How long a granted access to a session is believed without asking the ledger again."""

REACH = 1.0
"""For the hub to read what a client's history must contain: it is milliseconds behind. After that it is
looked whether there is anything left to read."""

CLOSE_GRACE = 0.5
"""For clients to take their last bytes when the service stops; they resume from their cursor anyway."""

HAND_OVER_FRAME = 64 << 10
"""Largest hand-over message: it is a few hundred bytes; more is a fault."""
