"""PostgreSQL: writing batches of rows exactly once, and reading snapshots back. No decisions here."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import asyncpg
from valet_protocol.errors import Unavailable
from valet_protocol.events.facts import Role
from valet_service import database, logs

from valet_session_ledger import limits
from valet_session_ledger.decide_commands import Target
from valet_session_ledger.projection import session_row, state_row
from valet_session_ledger.queries import SCHEMA, Queries, grouped, load, together
from valet_session_ledger.rows import TABLES, Batch, EventRow, columns
from valet_session_ledger.state import DEFAULT_CHANNEL, CommandReceipt, Receipt, SessionState, unpack

_log = logs.get(__name__)
T = TypeVar("T")

BAD_DATA = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.UntranslatableCharacterError,
    OverflowError,
    UnicodeError,
)
"""What a write raises when a row, not the server, is at fault."""


async def open_store(url: str) -> tuple[asyncpg.Pool, "Store"]:
    """Connect (waiting for the server as long as it takes) and bring the schema up to date."""
    pool = await database.open_pool(url, size=limits.POOL)
    await _migrate(pool)
    return pool, Store(pool, load())


async def migrate_store(url: str) -> None:
    """Bring the schema up to date, for a program that keeps no pool."""
    pool = await database.open_pool(url, size=1)
    try:
        await _migrate(pool)
    finally:
        await pool.close()


async def _migrate(pool: asyncpg.Pool) -> None:
    folder = files("valet_session_ledger") / "migrations"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    await database.persist(lambda: database.migrate(pool, SCHEMA, found))


async def patiently(action: Callable[[], Awaitable[T]]) -> T:
    """A read on behalf of somebody who waits: tried again over a restart of PostgreSQL. Raises `Unavailable`."""
    try:
        async with asyncio.timeout(limits.DATABASE_WAIT):
            return await database.persist(action)
    except TimeoutError as error:
        raise Unavailable("database_unavailable", "The database does not answer at the moment; try again.") from error


class Snapshot:
    """A session's stored state."""

    __slots__ = ("seq", "state")

    def __init__(self, state: SessionState, seq: int) -> None:
        self.state = state
        self.seq = seq


class Store:
    """The ledger's tables in one schema."""

    def __init__(self, pool: asyncpg.Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def checkpoints(self, shards: Sequence[int]) -> dict[int, int]:
        """How far each shard is projected; those never read are noted as 0."""
        async with self._pool.acquire() as connection:
            await connection.execute(self._sql["ensure_checkpoints"], shards)
            rows = await connection.fetch(self._sql["checkpoints"], shards)
        return {row["shard"]: row["seq"] for row in rows}

    async def write(self, batch: Batch, shards: Sequence[int]) -> None:
        """Store a batch and advance its shards' checkpoints to its last sequence, in one transaction.

        Nothing happens if another replica has done it. Rows PostgreSQL cannot take are left out, session by
        session, with a log line: one session's bad data must not stop all others. Raises asyncpg's errors.
        """
        async with self._pool.acquire() as connection:
            try:
                async with connection.transaction():
                    if await self._is_written(connection, batch, shards):
                        return
                    await write_rows(connection, self._sql, batch)
                    await self._finish(connection, batch, shards)
                return
            except BAD_DATA as error:
                _log.error("batch_refused", error=str(error), last_seq=batch.last_seq)
            async with connection.transaction():
                if await self._is_written(connection, batch, shards):
                    return
                await self._write_by_session(connection, batch)
                await self._finish(connection, batch, shards)

    async def _is_written(self, connection: Any, batch: Batch, shards: Sequence[int]) -> bool:
        """Whether another replica has; from here on none does."""
        held = await connection.fetch(self._sql["lock_checkpoints"], shards)
        return bool(held) and all(row["seq"] >= batch.last_seq for row in held)

    async def _finish(self, connection: Any, batch: Batch, shards: Sequence[int]) -> None:
        """The raw events, and how far it is projected now."""
        advance = self._sql["advance_checkpoints"]
        if not batch.events:
            await connection.execute(advance, shards, batch.last_seq)
            return
        statement = together(self._sql["archive"], advance)
        await connection.execute(statement, *columns(batch.events), shards, batch.last_seq)

    async def _write_by_session(self, connection: Any, batch: Batch) -> None:
        for session_id in batch.sessions():
            try:
                async with connection.transaction():
                    await write_rows(connection, self._sql, batch.only(session_id))
            except BAD_DATA as error:
                _log.error(
                    "session_not_projected",
                    session=session_id,
                    error=str(error),
                    remedy="its events are archived; `valet ledger rebuild` folds them again after a fix",
                )

    async def snapshots(self, session_ids: Sequence[str]) -> dict[str, Snapshot]:
        """The stored states of some sessions; those without one are not in the answer."""
        rows = await self._pool.fetch(self._sql["states"], session_ids)
        return {row["session_id"]: Snapshot(unpack(row["state"]), row["seq"]) for row in rows}

    async def restless(self) -> list[tuple[str, int | None]]:
        """Sessions in which something is to be decided, with the time if it is not now."""
        rows = await self._pool.fetch(self._sql["restless"])
        return [(row["session_id"], row["next_due_ms"]) for row in rows]

    async def going_on(self, count: int) -> list[str]:
        """Sessions that have not ended, the latest active first."""
        return [row["session_id"] for row in await self._pool.fetch(self._sql["going_on"], count)]

    async def deltas_needed_from(self) -> int | None:
        """The sequence below which no delta is needed any more; none while nothing is stored."""
        return await self._pool.fetchval(self._sql["deltas_needed_from"])

    async def role_above(self, ancestors: Sequence[str], user: str) -> Role | None:
        """As what a user takes part in any of the sessions above one."""
        return await self._pool.fetchval(self._sql["role_above"], ancestors, user)

    async def living_in_tree(self, root: str) -> int:
        """How many sessions of a tree have not ended."""
        return await self._pool.fetchval(self._sql["living_in_tree"], root)

    async def command_receipt(self, session_id: str, request_id: str) -> CommandReceipt | None:
        """What was requested under a command's id, however long ago."""
        row = await self._pool.fetchrow(self._sql["command_receipt"], session_id, request_id)
        return (
            None if row is None else CommandReceipt(request_id=request_id, digest=row["digest"], seq=row["first_seq"])
        )

    async def message_target(self, session_id: str, message_id: str) -> Target | None:
        """The message a command is about."""
        row = await self._pool.fetchrow(self._sql["message_target"], session_id, message_id)
        if row is None:
            return None
        return Target(
            message_id=message_id,
            turn_id=row["turn_id"] if row["role"] == "user" else None,
            channel=row["channel"] or DEFAULT_CHANNEL,
        )

    async def prompts_given(self, session_id: str, prompt_ids: Sequence[str]) -> frozenset[str]:
        """Which of some prompts were ever given to a session."""
        rows = await self._pool.fetch(self._sql["prompts_given"], session_id, prompt_ids)
        return frozenset(row["prompt_id"] for row in rows)

    async def took_part(self, session_id: str, user: str) -> bool:
        """Whether a user has ever taken part in a session, besides its owner."""
        return await self._pool.fetchval(self._sql["took_part"], session_id, user)

    async def prompt_receipt(self, session_id: str, prompt_id: str) -> Receipt | None:
        """What was accepted under a prompt id, however long ago."""
        row = await self._pool.fetchrow(self._sql["prompt_receipt"], session_id, prompt_id)
        if row is None:
            return None
        return Receipt(prompt_id=prompt_id, digest=row["digest"], seq=row["first_seq"], withdrawn=row["withdrawn"])


async def write_rows(connection: Any, queries: Queries, batch: Batch) -> None:
    """Upsert everything of a batch but its raw events."""
    tables: list[tuple[str, Any]] = [(table, batch.rows(table).values()) for table in TABLES]
    tables += [
        ("sessions", [session_row(touched) for touched in batch.touched.values()]),
        ("states", [state_row(touched) for touched in batch.touched.values() if touched.changed]),
    ]
    found = {queries[f"upsert_{name}"]: rows for name, rows in tables if rows}
    for group in grouped(list(found)):
        values = [column for statement in group for column in columns(found[statement])]
        await connection.execute(together(*group), *values)


async def write_events(connection: Any, queries: Queries, events: list[EventRow]) -> None:
    """Archive raw events."""
    if events:
        await connection.execute(queries["archive"], *columns(events))
