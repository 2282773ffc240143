"""A real broker and a real PostgreSQL, one of each for all tests; the ledger only knows owners."""

import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from valet_event_bus.testing import Database
from valet_knowledge.testing import serving
from valet_protocol.ids import new_id
from valet_service import broker
from valet_service.testing import BrokerProcess
from valet_service.testing_sandbox import Agent, OwnerLedger


@pytest.fixture(scope="session")
def nats() -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory(prefix="valet-nats-") as folder, BrokerProcess(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="valet-pg-") as folder:
        database = Database(Path(folder))
        database.start()
        yield database
        database.end(signal.SIGKILL)


@pytest.fixture
async def database_url(postgres: Database) -> str:
    return await postgres.create()


@pytest.fixture
async def nc(nats: BrokerProcess) -> AsyncIterator[Client]:
    connection = await nats.connect()
    yield connection
    await broker.close(connection)


@pytest.fixture
async def ledger(nc: Client) -> OwnerLedger:
    """Knows the sessions of Olga, two of them, and Carl."""
    ledger = OwnerLedger({new_id(): user for user in ("olga", "olga", "carl")})
    await ledger.serve(nc)
    return ledger


@pytest.fixture
async def agents(nc: Client, ledger: OwnerLedger, nats: BrokerProcess, database_url: str) -> AsyncIterator[list[Agent]]:
    """The agents of those three sessions, and the service they ask."""
    async with serving(nats.url, database_url):
        yield [Agent(nc, session_id) for session_id in ledger.owners]
