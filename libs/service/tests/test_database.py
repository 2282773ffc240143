"""Claims about waiting for PostgreSQL. Pools and migrations are tested by the services, on a real server."""

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from valet_service import limits
from valet_service.database import persist


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
        asyncpg.InterfaceError("cannot perform operation: connection is closed"),
        asyncpg.InterfaceError("cannot call Connection.fetch(): connection has been released back to the pool"),
    ],
)
async def test_work_is_tried_again_while_the_server_is_away(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DATABASE_RETRY_WAIT", 0.0)
    errors = [error, error]

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert await persist(work) == "done"


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InterfaceError("the server expects 1 argument for this query, 2 were passed"),
        asyncpg.exceptions._base.DataError("invalid input for query argument $1"),  # pyright: ignore[reportPrivateUsage]
        asyncpg.InterfaceError("pool is closed"),
        asyncpg.UniqueViolationError("duplicate key"),
    ],
)
async def test_an_error_of_the_program_is_not_tried_for_ever(error: Exception) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(type(error)):
        await persist(work)
