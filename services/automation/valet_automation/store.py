"""The task boards in PostgreSQL, schema `automation`. The statements are in `queries.sql`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.tools.tasks import TaskPage, TaskView, UpdateTask
from valet_service import database, named_sql
from valet_service.once import Connection, once

from valet_automation import board, limits
from valet_automation.board import PRIORITIES, Task
from valet_automation.errors import AutomationAway, NotACursor, TaskNotFound

SCHEMA = "automation"
QUERIES = named_sql.queries("valet_automation")

T = TypeVar("T")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Who changes something, and by which request."""

    user: str
    session_id: str
    request_id: str


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks of a board are listed."""

    status: str | None
    assigned_session: str | None
    parent_task: str | None = None
    limit: int
    after: str | None
    """`next` of the page before."""


class Store:
    """The tables. Run `keep()` as a task; what needs them before `opened` waits."""

    def __init__(self, url: str, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.opened = asyncio.Event()
        self._url = url
        self._now_ms = now_ms
        self._pool: asyncpg.Pool | None = None

    async def keep(self) -> None:
        """Until cancelled: wait for the server, bring the schema up to date, and remove what is old now and then."""
        pool = await database.open_pool(self._url, size=limits.DATABASE_CONNECTIONS)
        self._pool = pool
        await database.persist(lambda: database.migrate(pool, SCHEMA, named_sql.migrations("valet_automation")))
        self.opened.set()
        while True:
            await database.persist(self.prune)
            await asyncio.sleep(limits.PRUNE_EVERY)

    def close(self) -> None:
        """Drop the connections; what was not committed is asked for again."""
        if self._pool is not None:
            self._pool.terminate()

    async def prune(self) -> None:
        """Remove what is old. Raises one of `database.UNAVAILABLE`."""
        pool, now = await self._connected(), self._now_ms()
        await pool.execute(QUERIES["prune_answers"], now - limits.ANSWERS_KEPT * 1000)
        await pool.execute(QUERIES["prune_tasks"], now - limits.FINISHED_KEPT * 24 * 3600 * 1000)

    async def page(self, user: str, wanted: Wanted) -> TaskPage:
        """The most urgent first, and of those the oldest. Raises `NotACursor` and `AutomationAway`."""
        priority, number = _position(wanted.after)

        async def attempt() -> Sequence[asyncpg.Record]:
            return await (await self._connected()).fetch(
                QUERIES["list"],
                user,
                wanted.status,
                wanted.assigned_session,
                wanted.parent_task,
                priority,
                number,
                wanted.limit + 1,
            )

        rows = await _in_time(attempt)
        shown = rows[: wanted.limit]
        more = len(rows) > len(shown)
        return TaskPage(
            items=[_view(row) for row in shown],
            next=f"{shown[-1]['priority']}-{shown[-1]['number']}" if more else None,
        )

    async def get(self, user: str, task_id: str) -> TaskView:
        """Raises `TaskNotFound` and `AutomationAway`."""

        async def attempt() -> asyncpg.Record | None:
            return await (await self._connected()).fetchrow(QUERIES["task"], task_id, user)

        row = await _in_time(attempt)
        if row is None:
            raise TaskNotFound(task_id)
        return _view(row)

    async def create(self, change: Change, task: Task) -> TaskView:
        """Raises `TaskNotFound` for the task it is a part of or waits for, what `board.check` raises, and
        `AutomationAway`."""

        async def act(connection: Connection) -> TaskView:
            unfinished = await self._unfinished(connection, change.user)
            board.check(None, task, unfinished)
            await self._must_be_there(connection, change.user, task)
            created_by = f"session:{change.session_id}"
            row = await connection.fetchrow(
                QUERIES["add"], task.id, change.user, *_columns(task), created_by, self._now_ms()
            )
            return _view(_there(row))

        return await self._change(change, act)

    async def update(self, change: Change, wanted: UpdateTask) -> TaskView:
        """Raises `TaskNotFound`, what `board.changed` and `board.check` raise, and `AutomationAway`."""

        async def act(connection: Connection) -> TaskView:
            row = await connection.fetchrow(QUERIES["task"], wanted.task_id, change.user)
            if row is None:
                raise TaskNotFound(wanted.task_id)
            before = _task(row)
            task = board.changed(before, wanted)
            unfinished = await self._unfinished(connection, change.user)
            board.check(before, task, unfinished)
            if wanted.blocked_by is not None:
                await self._must_be_there(connection, change.user, task)
            row = await connection.fetchrow(QUERIES["change"], task.id, change.user, *_columns(task), self._now_ms())
            return _view(_there(row))

        return await self._change(change, act)

    async def _unfinished(self, connection: Connection, user: str) -> dict[str, list[str]]:
        return {row["id"]: row["blocked_by"] for row in await connection.fetch(QUERIES["unfinished"], user)}

    async def _must_be_there(self, connection: Connection, user: str, task: Task) -> None:
        """Raises `TaskNotFound` if what a task is a part of or waits for is not on its board."""
        named = [*([task.parent_task] if task.parent_task else []), *task.blocked_by]
        known = {row["id"] for row in await connection.fetch(QUERIES["known"], user, named)}
        for one in named:
            if one not in known:
                raise TaskNotFound(one)

    async def _change(self, change: Change, act: Callable[[Connection], Awaitable[TaskView]]) -> TaskView:
        """Change a person's board, once for each request."""

        async def attempt() -> TaskView:
            async with (await self._connected()).acquire() as connection, connection.transaction():

                async def alone() -> TaskView:
                    await connection.execute(QUERIES["lock"], change.user)
                    return await act(connection)

                return await once(
                    connection, SCHEMA, change.session_id, change.request_id, TaskView, alone, self._now_ms()
                )

        return await _in_time(attempt)

    async def _connected(self) -> asyncpg.Pool:
        await self.opened.wait()
        assert self._pool
        return self._pool


async def _in_time(attempt: Callable[[], Awaitable[T]]) -> T:
    """Again and again while the database restarts, but not for longer than an agent waits."""
    try:
        async with asyncio.timeout(limits.DATABASE_ANSWER):
            return await database.persist(attempt)
    except TimeoutError:
        raise AutomationAway from None


def _position(after: str | None) -> tuple[int, int]:
    """Priority and number of the last task of a page; what comes before all when there is none. Raises `NotACursor`."""
    if after is None:
        return len(PRIORITIES), 0
    priority, _, number = after.partition("-")
    if not all(part.isascii() and part.isdigit() for part in (priority, number)):
        raise NotACursor
    if int(priority) >= len(PRIORITIES) or int(number) >= 1 << 63:
        raise NotACursor
    return int(priority), int(number)


def _columns(task: Task) -> tuple[object, ...]:
    return (
        task.title,
        task.description,
        task.status,
        PRIORITIES.index(task.priority),
        task.assigned_session,
        task.parent_task,
        task.blocked_by,
        task.result,
    )


def _there(row: asyncpg.Record | None) -> asyncpg.Record:
    assert row, "a row that was written is returned"
    return row


def _task(row: asyncpg.Record) -> Task:
    return Task(
        id=row["id"],
        title=row["title"],
        description=row["description"],
        status=row["status"],
        priority=PRIORITIES[row["priority"]],
        assigned_session=row["assigned_session"],
        parent_task=row["parent_task"],
        blocked_by=row["blocked_by"],
        result=row["result"],
    )


def _view(row: asyncpg.Record) -> TaskView:
    task = _task(row)
    return TaskView(
        id=task.id,
        title=task.title,
        description=task.description,
        status=task.status,
        priority=task.priority,
        assigned_session=task.assigned_session,
        parent_task=task.parent_task,
        blocked_by=task.blocked_by,
        result=task.result,
        created_by=row["created_by"],
        created_at=rfc3339(row["created_ms"]),
        updated_at=rfc3339(row["updated_ms"]),
    )
