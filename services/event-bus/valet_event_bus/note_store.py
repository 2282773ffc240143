"""Notes of agents in PostgreSQL, beside the notifications. The statements are in `queries.sql`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.requests import Reply
from valet_protocol.tools.notifications import MailboxNote, MailboxPage, MailboxRead, NotificationEmitted
from valet_service import database
from valet_service.once import Connection, once

from valet_event_bus import limits
from valet_event_bus.errors import MailboxFull, NotesAway, TooManyNotes
from valet_event_bus.notes import Note, for_people
from valet_event_bus.notify import Audience, Notification
from valet_event_bus.store import NEWEST, QUERIES, SCHEMA, Store, add

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class NoteStore:
    """Everything raises `NotesAway` while the database is away for longer than a restart takes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tell_people(
        self, note: Note, request_id: str, owner: str
    ) -> tuple[NotificationEmitted, list[Notification]]:
        """Store a note for those who work in its session; what is new of it, for those who are connected. Raises
        `TooManyNotes`."""
        news: list[Notification] = []

        async def act(connection: Connection) -> NotificationEmitted:
            news.clear()
            await self._add(connection, note)
            await connection.fetchrow(QUERIES["lock_position"])
            rows = await connection.fetch(QUERIES["audiences"], [note.session_id])
            known = [msgspec.json.decode(row["audience"], type=Audience) for row in rows]
            for one in for_people(note, owner, known[0] if known else Audience()):
                if await add(connection, one):
                    news.append(one)
            return NotificationEmitted(id=note.id)

        answer = await self._once(note.session_id, request_id, note.time_ms, NotificationEmitted, act)
        return answer, news

    async def put(self, note: Note, request_id: str, mailbox: str) -> NotificationEmitted:
        """Store a note in a session's mailbox. Raises `TooManyNotes` and `MailboxFull`."""

        async def act(connection: Connection) -> NotificationEmitted:
            await self._add(connection, note)
            if await connection.fetchval(QUERIES["unread_notes"], mailbox) > limits.MAILBOX_UNREAD:
                raise MailboxFull(limits.MAILBOX_UNREAD)
            return NotificationEmitted(id=note.id)

        return await self._once(note.session_id, request_id, note.time_ms, NotificationEmitted, act)

    async def page(self, mailbox: str, limit: int, before: int, unread: bool) -> MailboxPage:
        """The notes in a session's mailbox, newest first."""

        async def attempt() -> tuple[Sequence[asyncpg.Record], int]:
            pool = await self._store.connected()
            rows = await pool.fetch(QUERIES["mailbox"], mailbox, before, unread, limit + 1)
            return rows, await pool.fetchval(QUERIES["unread_notes"], mailbox)

        rows, count = await _in_time(attempt)
        return MailboxPage(
            items=[_view(row) for row in rows[:limit]],
            unread=count,
            next=str(rows[limit - 1]["number"]) if len(rows) > limit else None,
        )

    async def mark(self, mailbox: str, request_id: str, ids: Sequence[str] | None, now_ms: int) -> MailboxRead:
        """A session has dealt with some notes of its mailbox, or all."""

        async def act(connection: Connection) -> MailboxRead:
            if ids is None:
                marked = await connection.fetch(QUERIES["mark_all_notes"], mailbox, now_ms)
            else:
                marked = await connection.fetch(QUERIES["mark_notes"], mailbox, ids, now_ms)
            return MailboxRead(marked=len(marked), unread=await connection.fetchval(QUERIES["unread_notes"], mailbox))

        return await self._once(mailbox, request_id, now_ms, MailboxRead, act)

    async def _add(self, connection: Connection, note: Note) -> None:
        """Raises `TooManyNotes`."""
        await connection.execute(QUERIES["lock_sender"], note.session_id)
        hour = note.time_ms - 3600 * 1000
        if await connection.fetchval(QUERIES["sent"], note.session_id, hour) >= limits.NOTES_AN_HOUR:
            raise TooManyNotes(limits.NOTES_AN_HOUR)
        if note.mailbox is not None:
            await connection.execute(QUERIES["lock_mailbox"], note.mailbox)
        await connection.execute(
            QUERIES["add_note"],
            note.id,
            note.mailbox,
            note.session_id,
            note.level,
            note.title,
            note.text,
            note.time_ms,
        )

    async def _once(
        self, session_id: str, request_id: str, now_ms: int, reply: type[R], act: Callable[[Connection], Awaitable[R]]
    ) -> R:
        async def attempt() -> R:
            async with (await self._store.connected()).acquire() as connection, connection.transaction():
                return await once(connection, SCHEMA, session_id, request_id, reply, lambda: act(connection), now_ms)

        return await _in_time(attempt)


async def _in_time(attempt: Callable[[], Awaitable[T]]) -> T:
    """Again and again while the database restarts, but not for longer than an agent waits."""
    try:
        async with asyncio.timeout(limits.NOTE_ANSWER):
            return await database.persist(attempt)
    except TimeoutError:
        raise NotesAway from None


def position(before: str | None) -> int | None:
    """What a cursor says: below which number to go on; none for what no page gave."""
    if before is None:
        return NEWEST
    return int(before) if before.isascii() and before.isdigit() and int(before) <= NEWEST else None


def _view(row: asyncpg.Record) -> MailboxNote:
    return MailboxNote(
        id=row["id"],
        title=row["title"],
        text=row["text"],
        level=row["level"],
        from_session=row["from_session"],
        created_at=rfc3339(row["created_ms"]),
        read_at=None if row["read_ms"] is None else rfc3339(row["read_ms"]),
    )
