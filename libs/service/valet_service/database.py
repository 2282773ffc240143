"""PostgreSQL: a pool that outlives restarts of the server, migrations, and waiting for it."""

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
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
"""What a statement raises while the server is away or restarting."""


async def open_pool(url: str, *, size: int = 4) -> asyncpg.Pool:
    """A pool of up to `size` connections, made on demand. Waits until the server answers."""

    async def attempt() -> asyncpg.Pool:
        pool = asyncpg.create_pool(
            url,
            min_size=1,
            max_size=size,
            timeout=limits.DATABASE_CONNECT_TIMEOUT,
            command_timeout=limits.DATABASE_COMMAND_TIMEOUT,
            max_inactive_connection_lifetime=60,
        )
        return await pool

    return await persist(attempt)


async def persist(action: Callable[[], Awaitable[T]]) -> T:
    """Do something again and again until the server is there. For work that must happen, not for requests."""
    reported = False
    while True:
        try:
            return await action()
        except UNAVAILABLE as error:
            if not reported:
                _log.warning("database_unavailable", error=str(error) or type(error).__name__)
                reported = True
            await asyncio.sleep(limits.DATABASE_RETRY_WAIT)


async def migrate(pool: asyncpg.Pool, schema: str, migrations: Sequence[Traversable]) -> None:
    """Bring a service's schema up to date: every file once, in order, each in a transaction with its record.

    Two processes may do it at once; the second waits for the first.
    """
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"valet:{schema}")
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema}.migrations (name text PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        applied = {row["name"] for row in await connection.fetch(f"SELECT name FROM {schema}.migrations")}
        for file in migrations:
            if file.name not in applied:
                await connection.execute(file.read_text())
                await connection.execute(f"INSERT INTO {schema}.migrations (name) VALUES ($1)", file.name)
