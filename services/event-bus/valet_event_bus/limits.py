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

PARTING = 2.0
"""Seconds for a client that is cut off while it sends: to send the rest, which is thrown away, and read why."""

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

TYPING = 6.0
"""How long typing counts without being said again: clients renew it every few seconds, a pause to think is longer."""

ANNOUNCE = 10.0
"""Between two words of a replica about who is with it: a lost one is made good by the next."""

REPLICA_SILENT = 30.0
"""After three missing words a replica is gone, and its people with it, until they connect to another."""

PRESENCE_GOODBYE = 0.5
"""For the broker to take the last word of a replica that stops; it has 4 s for all of its stopping."""

PRESENCE_FLUSH = 0.2
"""Between two looks at what is to be said of presence: a person notices no delay, and a hundred changes of a burst make
one message."""

PRESENCE_WRITES = 1000
"""Lists of people written to the clients of one session per second: 2 % of the time of one core, whatever they do."""

PRESENCE_AT_ONCE = 50
"""Such writes in one go; events go between."""

PRESENCE_PEOPLE = 100
"""People shown of one session, or believed of one replica: more than any screen shows, and a list stays small."""

PRESENCE_REPLICAS = 64
"""Replicas believed of one session: far more than anybody runs, so that forged ones cannot fill the memory."""

PRESENCE_PENDING = 10_000
"""Words of other replicas that may wait to be read; more are dropped, and said again in a few seconds."""

REMOVAL_REMEMBERED = 60.0
"""How long the removal of somebody goes before what the ledger says: api may have asked it just before, and its read
model is milliseconds behind the log. Longer than any request takes."""

DOUBT_ANSWER = 5.0
"""For the ledger to say whether somebody may still watch; then it is asked again. Longer than its restart."""

DOUBT_RETRY = 2.0
"""Before it is asked again: what somebody sees who should not, beyond the time in which the ledger is away."""

DOUBTS_AT_ONCE = 8
"""Questions of this kind at a time: each asks about some dozen sessions, and people who connect are not held up."""

TREE_DEPTH = 32
"""Sessions above one that are looked at: many times what the ledger allows."""

NOTIFY_EVENTS = 200
"""Events that become notifications in one transaction: some 50 ms of statements."""

NOTIFY_WAITING = 5_000
"""Events kept for the database while it is away, a few MB; beyond that they are read from the log again."""

NOTIFY_RETRY = 5.0
"""Before a batch that could not be dealt with for another reason than a database that is away is tried again."""

POSITION_EVERY = 60.0
"""How often the position is stored although nothing concerned anybody: what is read again after a restart."""

NOTIFICATION_KEPT = 30
"""Days a notification is kept after it was read: long enough to find yesterday's again, and the table stays small. An
unread one is never removed."""

PRUNE_EVERY = 3600.0
"""Between two removals of old notifications: an index scan that mostly finds nothing."""

NOTIFICATION_TEXT = 500
"""Characters of a notification's text: it is a line on a screen, the session has the whole."""

NOTIFICATION_PAGE = 200
"""Notifications in one reply at most, some 100 KB."""

NOTIFICATIONS_NAMED = 1000
"""Ids in one request to mark as read."""

DATABASE_CONNECTIONS = 3
"""One that stores, one for people who list and one for agents: a page takes a millisecond."""

DATABASE_ANSWER = 2.0
"""For a page of notifications while this replica starts or the database restarts; then the answer is to try again."""

OWNERS_KEPT = 10_000
"""Sessions whose owner is remembered: far more than are awake at once, some 5 MB."""

NOTES_AN_HOUR = 60
"""Notes one agent may write: one a minute is already more than people read; an agent in a loop writes one a second."""

MAILBOX_UNREAD = 500
"""Unread notes in one mailbox: a session that does not look is not filled up for ever."""

NOTE_ANSWER = 8.0
"""For one request of an agent while the database restarts (a second or two): it waits 15 s for the whole."""

ANSWERS_KEPT = 24 * 3600
"""Seconds the answer to a request is kept for when it comes again: a runner gives up after minutes."""
