"""Answers of requests that carry an Idempotency-Key, kept in PostgreSQL so that their repetition is answered alike.

A key belongs to a user, a method and a path. While its request is in flight the row has a holder, who renews its lease;
a holder that crashed loses it, and the next repetition does the work.
"""

import re

import asyncpg
import msgspec

from valet_api import limits
from valet_api.store import QUERIES

KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""What may be a key: visible ASCII, with blanks inside."""

_DECIDED = frozenset({403, 404, 409, 422})
"""Refusals that are remembered: the request was understood and refused. Others (not signed in, malformed, too much at
the moment) were not about what was asked, and a 5xx is the platform's own trouble."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is unique in."""

    user: str
    route: str
    """Method and path."""
    key: str
    """The client's `Idempotency-Key`."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    status: int
    headers: dict[str, str]
    """Those that belong to the answer: its type, and where what was made is found."""
    body: bytes | None
    """None where it holds a secret: the request is then done again, which gives the same answer."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key."""

    digest: bytes | None
    """SHA-256 of the request; None as long as its body was not read."""
    running: bool
    """Whether the request is in flight."""
    kept: Kept | None


def is_kept(status: int) -> bool:
    """Whether a repetition is to get this answer."""
    return 200 <= status < 300 or status in _DECIDED


class Replies:
    """The table. Raises one of `database.UNAVAILABLE` while the server is away."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def reserve(self, scope: Scope, digest: bytes | None, holder: str) -> bool:
        """Take the key for a request in flight; False when somebody else has it or it has its answer."""
        lease, kept = limits.LEASE, limits.REPLY_KEPT
        row = await self._pool.fetchrow(
            QUERIES["reserve_reply"], scope.user, scope.route, scope.key, digest, holder, lease, kept
        )
        return row is not None

    async def find(self, scope: Scope) -> Found | None:
        """What is known of a key; None when nothing is."""
        row = await self._pool.fetchrow(QUERIES["find_reply"], scope.user, scope.route, scope.key)
        if row is None:
            return None
        kept = None
        if row["status"] is not None:
            headers = msgspec.json.decode(row["headers"], type=dict[str, str])
            kept = Kept(status=row["status"], headers=headers, body=row["body"])
        return Found(digest=row["digest"], running=row["running"], kept=kept)

    async def renew(self, scope: Scope, holder: str) -> None:
        """The request in flight is still at work."""
        await self._pool.execute(QUERIES["renew_reply"], scope.user, scope.route, scope.key, holder, limits.LEASE)

    async def keep(self, scope: Scope, holder: str, digest: bytes, kept: Kept) -> None:
        """The request was answered."""
        headers = msgspec.json.encode(kept.headers).decode()
        await self._pool.execute(
            QUERIES["keep_reply"],
            *(scope.user, scope.route, scope.key, holder),
            *(digest, kept.status, headers, kept.body),
        )

    async def release(self, scope: Scope, holder: str) -> None:
        """The key is free again."""
        await self._pool.execute(QUERIES["release_reply"], scope.user, scope.route, scope.key, holder)

    async def drop_old(self) -> None:
        """Remove answers that nobody asks for any more."""
        await self._pool.execute(QUERIES["drop_old_replies"], limits.REPLY_KEPT)
