"""Memories in PostgreSQL, schema `knowledge`. The statements are in `queries.sql`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.requests import Reply
from valet_protocol.tools.memory import Memory, MemoryDeleted, MemoryList, MemoryWritten
from valet_service import database, named_sql
from valet_service.once import Connection, once

from valet_knowledge import limits
from valet_knowledge.errors import KnowledgeAway, MemoryNotFound, TooManyMemories
from valet_knowledge.words import query, words

SCHEMA = "knowledge"
QUERIES = named_sql.queries("valet_knowledge")

NEWEST = (1 << 63) - 1
"""Before every change."""

R = TypeVar("R", bound=Reply)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Who changes something, and by which request."""

    user: str
    session_id: str
    request_id: str


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory says."""

    content: str
    category: str
    workspace: str | None


class Store:
    """The tables. Run `keep()` as a task; what needs them before `opened` waits."""

    def __init__(self, url: str, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.opened = asyncio.Event()
        self._url = url
        self._now_ms = now_ms
        self._pool: asyncpg.Pool | None = None

    async def keep(self) -> None:
        """Until cancelled: wait for the server, bring the schema up to date, and remove old answers now and then."""
        pool = await database.open_pool(self._url, size=limits.DATABASE_CONNECTIONS)
        self._pool = pool
        await database.persist(lambda: database.migrate(pool, SCHEMA, named_sql.migrations("valet_knowledge")))
        self.opened.set()
        while True:
            before = self._now_ms() - limits.ANSWERS_KEPT * 1000
            await database.persist(lambda before=before: pool.execute(QUERIES["prune"], before))
            await asyncio.sleep(limits.PRUNE_EVERY)

    def close(self) -> None:
        """Drop the connections; what was not committed is asked for again."""
        if self._pool is not None:
            self._pool.terminate()

    async def page(self, user: str, category: str | None, workspace: str | None, before: int, limit: int) -> MemoryList:
        """The latest change first. Raises `KnowledgeAway`."""
        rows = await self._fetch(QUERIES["list"], user, category, workspace, before, limit + 1)
        more = len(rows) > limit
        return MemoryList(
            items=[_memory(row) for row in rows[:limit]], next=str(rows[limit - 1]["change"]) if more else None
        )

    async def search(self, user: str, text: str, category: str | None, workspace: str | None, limit: int) -> MemoryList:
        """The best match first. Raises `KnowledgeAway`."""
        rows = await self._fetch(QUERIES["search"], user, category, workspace, query(text), limit)
        return MemoryList(items=[_memory(row) for row in rows])

    async def write(self, change: Change, text: Text, new_id: str, memory_id: str | None) -> MemoryWritten:
        """A new memory, or another text for one that is there. Raises `MemoryNotFound`, `TooManyMemories` and
        `KnowledgeAway`."""

        async def act(connection: Connection) -> MemoryWritten:
            if memory_id is None and await connection.fetchval(QUERIES["count"], change.user) >= limits.MEMORIES:
                raise TooManyMemories(limits.MEMORIES)
            done = await connection.fetchval(
                QUERIES["add" if memory_id is None else "rewrite"],
                memory_id or new_id,
                change.user,
                text.workspace,
                text.category,
                text.content,
                words(text.content),
                change.session_id,
                self._now_ms(),
            )
            if memory_id is not None and done is None:
                raise MemoryNotFound(memory_id)
            return MemoryWritten(id=memory_id or new_id, created=memory_id is None)

        return await self._change(change, MemoryWritten, act)

    async def delete(self, change: Change, memory_id: str) -> MemoryDeleted:
        """Raises `KnowledgeAway`."""

        async def act(connection: Connection) -> MemoryDeleted:
            gone = await connection.fetchval(QUERIES["delete"], memory_id, change.user)
            return MemoryDeleted(id=memory_id, deleted=gone is not None)

        return await self._change(change, MemoryDeleted, act)

    async def _change(self, change: Change, reply: type[R], act: Callable[[Connection], Awaitable[R]]) -> R:
        """Change a person's memories, once for each request."""

        async def attempt() -> R:
            async with (await self._connected()).acquire() as connection, connection.transaction():

                async def alone() -> R:
                    await connection.execute(QUERIES["lock"], change.user)
                    return await act(connection)

                return await once(
                    connection, SCHEMA, change.session_id, change.request_id, reply, alone, self._now_ms()
                )

        return await _in_time(attempt)

    async def _fetch(self, statement: str, *arguments: object) -> Sequence[asyncpg.Record]:
        async def attempt() -> Sequence[asyncpg.Record]:
            return await (await self._connected()).fetch(statement, *arguments)

        return await _in_time(attempt)

    async def _connected(self) -> asyncpg.Pool:
        await self.opened.wait()
        assert self._pool
        return self._pool


T = TypeVar("T")


async def _in_time(attempt: Callable[[], Awaitable[T]]) -> T:
    """Again and again while the database restarts, but not for longer than an agent waits."""
    try:
        async with asyncio.timeout(limits.DATABASE_ANSWER):
            return await database.persist(attempt)
    except TimeoutError:
        raise KnowledgeAway from None


def _memory(row: asyncpg.Record) -> Memory:
    return Memory(
        id=row["id"],
        content=row["content"],
        category=row["category"],
        workspace=row["workspace"],
        session=row["session_id"],
        created_at=rfc3339(row["created_ms"]),
        updated_at=rfc3339(row["updated_ms"]),
        score=row["score"],
    )
