"""A real nats-server, a real PostgreSQL and real event bus processes; the ledger is a fake."""

import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from valet_event_bus.testing import Bus, Database, session_view
from valet_protocol.errors import NotFound
from valet_protocol.requests import GetSession, SessionView
from valet_service import broker, rpc
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess


@pytest.fixture
def nats() -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory(prefix="valet-nats-") as folder:
        server = BrokerProcess(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
async def nc(nats: BrokerProcess) -> AsyncIterator[Client]:
    connection = await broker.connect(nats.url, name="test")
    await broker.ensure_stream(connection)
    yield connection
    await broker.close(connection)


@pytest.fixture
async def outbox(nats: BrokerProcess, nc: Client) -> AsyncIterator[Outbox]:
    async with Outbox(lambda: broker.connect(nats.url, name="test-outbox", reconnect=False)) as writer:
        yield writer


@pytest.fixture
def bus(nats: BrokerProcess, nc: Client) -> Iterator[Bus]:
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        service = Bus(nats, Path(folder))
        service.start()
        yield service
        if service.process and service.process.poll() is None:
            service.process.kill()
            service.process.wait(5)


@pytest.fixture
def other_bus(nats: BrokerProcess, nc: Client) -> Iterator[Bus]:
    """A second replica."""
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        service = Bus(nats, Path(folder))
        service.start()
        yield service
        if service.process and service.process.poll() is None:
            service.process.kill()
            service.process.wait(5)


@pytest.fixture
async def ledger(nc: Client) -> list[str]:
    """Says of every session that it belongs to everybody but strangers, and notes what it was asked."""
    asked: list[str] = []

    async def get_session(request: GetSession) -> SessionView:
        asked.append(request.session_id)
        if request.user == "somebody-else":
            raise NotFound("session_not_found", "There is no such session.")
        return session_view(request.session_id)

    await rpc.serve(nc, "rpc.ledger.*.get_session", GetSession, get_session, queue="ledger")
    await nc.flush()
    return asked


@pytest.fixture(scope="session")
def server() -> Iterator[Database]:
    """One for all tests; who stops it starts it again."""
    with tempfile.TemporaryDirectory(prefix="valet-pg-") as folder:
        database = Database(Path(folder))
        database.start()
        yield database
        database.end(signal.SIGKILL)


@pytest.fixture
async def database_url(server: Database) -> str:
    return await server.create()
