"""PostgreSQL: a pool that outlives restarts of the server, migrations, and waiting for it."""

# asyncpg carries no types; what this module hands on is typed as far as asyncpg's own names are.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources.abc import Traversable
from typing import TypeVar

import asyncpg

from valet_service import limits, logs

_log = logs.get(__name__)
T = TypeVar("T")

UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # "another operation is in progress": a connection cut in a statement, on its way back
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
"""What a statement raises while the server is away or restarting.

Also some errors of the program itself (`InterfaceError` is asyncpg's word for a closed connection and for a wrong
argument): `persist` tells them apart.
"""


async def open_pool(url: str, *, size: int = 4) -> asyncpg.Pool:
    """A pool of up to `size` connections, made on demand and let go when idle. Waits until the server answers."""

    async def attempt() -> asyncpg.Pool:
        pool = await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=size,
            timeout=limits.DATABASE_CONNECT_TIMEOUT,
            command_timeout=limits.DATABASE_COMMAND_TIMEOUT,
            max_inactive_connection_lifetime=limits.DATABASE_IDLE,
        )
        try:
            await pool.execute("SELECT 1")
        except BaseException:
            pool.terminate()
            raise
        return pool

    return await persist(attempt)


async def persist(action: Callable[[], Awaitable[T]]) -> T:
    """Do something again and again until the server is there. For work that must happen, not for requests."""
    reported = ""
    while True:
        try:
            return await action()
        except UNAVAILABLE as error:
            if _is_ours(error):
                raise
            reason = str(error) or type(error).__name__
            if reason != reported:
                _log.warning("database_unavailable", error=reason)
                reported = reason
            await asyncio.sleep(limits.DATABASE_RETRY_WAIT)


def _is_ours(error: BaseException) -> bool:
    """An error of the program, which would come again for ever."""
    if not isinstance(error, asyncpg.InterfaceError):
        return False
    # one class for a connection that was closed and for misuse; only the words differ
    return isinstance(error, ValueError) or "argument" in str(error) or str(error).startswith("pool is clos")


async def migrate(pool: asyncpg.Pool, schema: str, migrations: Sequence[Traversable]) -> None:
    """Bring a service's schema up to date: every file once, in order, each in a transaction with its record.

    Two processes may do it at once; the second waits for the first.
    """
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"valet:{schema}")
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema}.migrations"
            " (name text PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        applied = {row["name"] for row in await connection.fetch(f"SELECT name FROM {schema}.migrations")}
        for file in migrations:
            if file.name not in applied:
                await connection.execute(file.read_text())
                await connection.execute(f"INSERT INTO {schema}.migrations (name) VALUES ($1)", file.name)
