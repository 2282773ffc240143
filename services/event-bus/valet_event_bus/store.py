"""Notifications in PostgreSQL, schema `notifications`. The statements are in `queries.sql`."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import asyncpg
import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.events.envelope import Event
from valet_protocol.requests import NotificationPage, NotificationView
from valet_service import database, named_sql
from valet_service.once import Connection

from valet_event_bus import limits
from valet_event_bus.notify import Audience, Digest, Notification

SCHEMA = "notifications"
QUERIES = named_sql.queries("valet_event_bus")

NEWEST = (1 << 63) - 1
"""Above every number of a row."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Notifications of one user that were unread until now."""

    user: str
    ids: list[str]


class Store:
    """The tables. Until `open` has come to its end, what needs them waits."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._pool: asyncpg.Pool | None = None
        self._opened = asyncio.Event()
        self._now_ms = now_ms

    async def open(self, url: str, log_end: int) -> None:
        """Connect and bring the schema up to date; waits for the server. At the very first start nobody is told of
        what is in the log already, which reaches up to `log_end`."""
        pool = await database.open_pool(url, size=limits.DATABASE_CONNECTIONS)
        await database.persist(lambda: database.migrate(pool, SCHEMA, named_sql.migrations("valet_event_bus")))
        await database.persist(lambda: pool.execute(QUERIES["begin"], log_end))
        self._pool = pool
        self._opened.set()

    def close(self) -> None:
        """Drop the connections; what was not committed is done again by whoever reads on."""
        if self._pool is not None:
            self._pool.terminate()

    async def position(self) -> int:
        """How far the log was read. Raises one of `database.UNAVAILABLE`."""
        return await (await self.connected()).fetchval(QUERIES["position"])

    async def keep(
        self,
        events: Sequence[Event],
        upto: int,
        decide: Callable[[Sequence[Event], Mapping[str, Audience], int], Digest],
    ) -> "list[Notification | Read]":
        """Deal with those of the events that nobody has dealt with, and remember that the log was read up to `upto`,
        all in one transaction. `decide` gets the events, what is known of their sessions, and up to where to be silent.
        Returns what changed for people, in order. Raises one of `database.UNAVAILABLE`.
        """
        pool = await self.connected()
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(QUERIES["lock_position"])
            fresh = [event for event in events if event.seq > row["seq"]]
            news: list[Notification | Read] = []
            if fresh:
                sessions = list({event.session_id for event in fresh})
                rows = await connection.fetch(QUERIES["audiences"], sessions)
                known = {one["session_id"]: msgspec.json.decode(one["audience"], type=Audience) for one in rows}
                news = await self._write(connection, decide(fresh, known, row["silent_until"]))
            await connection.execute(QUERIES["advance"], upto)
        return news

    async def _write(self, connection: Connection, digest: Digest) -> list[Notification | Read]:
        for session_id, audience in digest.audiences.items():
            text = msgspec.json.encode(audience).decode()
            await connection.execute(QUERIES["save_audience"], session_id, text)
        news: list[Notification | Read] = []
        for one in digest.outcomes:
            if isinstance(one, Notification):
                if await add(connection, one):
                    news.append(one)
                continue
            question = _storable(one.question_id)
            rows = await connection.fetch(QUERIES["settle_question"], one.session_id, question, self._now_ms())
            news += [Read(user=row["user_id"], ids=[row["id"]]) for row in rows]
        return news

    async def page(self, user: str, limit: int, before: int | None, unread: bool) -> NotificationPage:
        """A user's notifications, newest first. Raises one of `database.UNAVAILABLE`."""
        pool = await self.connected()
        limit = max(1, min(limit, limits.NOTIFICATION_PAGE))
        rows = await pool.fetch(
            QUERIES["page"], user, NEWEST if before is None else min(before, NEWEST), unread, limit + 1
        )
        return NotificationPage(
            items=[_view(row) for row in rows[:limit]],
            unread=await pool.fetchval(QUERIES["unread"], user),
            next=rows[limit - 1]["number"] if len(rows) > limit else None,
        )

    async def mark(self, user: str, ids: Sequence[str] | None) -> tuple[list[str], int]:
        """A user has read some, or all: those that were unread, and how many still are. Raises one of
        `database.UNAVAILABLE`."""
        pool = await self.connected()
        if ids is None:
            rows = await pool.fetch(QUERIES["mark_all"], user, self._now_ms())
        else:
            named = [one for one in ids if "\0" not in one]
            rows = await pool.fetch(QUERIES["mark"], user, named, self._now_ms())
        return [row["id"] for row in rows], await pool.fetchval(QUERIES["unread"], user)

    async def prune(self) -> None:
        """Remove what was read long ago, and old answers to agents. Raises one of `database.UNAVAILABLE`."""
        pool = await self.connected()
        before = self._now_ms() - limits.NOTIFICATION_KEPT * 24 * 3600 * 1000
        await pool.execute(QUERIES["prune"], before)
        await pool.execute(QUERIES["prune_notes"], before)
        await pool.execute(QUERIES["prune_answers"], self._now_ms() - limits.ANSWERS_KEPT * 1000)

    async def connected(self) -> asyncpg.Pool:
        """Waits for `open`."""
        await self._opened.wait()
        assert self._pool
        return self._pool


async def add(connection: Connection, one: Notification) -> bool:
    """Store a notification; whether it is new. The position must be locked, so that numbers grow as they are seen."""
    number = await connection.fetchval(
        QUERIES["add"],
        one.id,
        one.user,
        one.kind,
        one.session_id,
        one.title,
        one.text,
        _storable(one.turn_id),
        _storable(one.question_id),
        one.level,
        one.seq,
        one.time_ms,
    )
    return number is not None


def view(one: Notification) -> NotificationView:
    """A new notification as its user gets it."""
    return NotificationView(
        id=one.id,
        kind=one.kind,
        session_id=one.session_id,
        title=one.title,
        text=one.text,
        turn_id=one.turn_id,
        question_id=one.question_id,
        level=one.level,
        created_at=rfc3339(one.time_ms),
        seq=one.seq,
    )


def _view(row: asyncpg.Record) -> NotificationView:
    return NotificationView(
        id=row["id"],
        kind=row["kind"],
        session_id=row["session_id"],
        title=row["title"],
        text=row["text"],
        turn_id=row["turn_id"],
        question_id=row["question_id"],
        level=row["level"],
        created_at=rfc3339(row["created_ms"]),
        read_at=None if row["read_ms"] is None else rfc3339(row["read_ms"]),
        seq=row["seq"],
    )


def _storable(text: str | None) -> str | None:
    """An id that a runner made up, without the one character PostgreSQL does not store."""
    return None if text is None else text.replace("\0", "")
