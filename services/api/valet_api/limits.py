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

REPLAY_FRESH = 600.0
"""How long the reply to an answer or abort is given again for the same Idempotency-Key."""

REPLAYS = 10_000
"""Replies remembered at most."""

READY_WAIT = 2.0
"""For each part that `/ready` asks: a part slower than this is not ready."""

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
"""Largest pages: a few hundred KB of JSON."""

TITLE_CHARACTERS = 200
REPO_CHARACTERS = 2048
BRANCH_CHARACTERS = 255
KEY_CHARACTERS = 200
"""Longest values taken; beyond these nothing is meant seriously."""
