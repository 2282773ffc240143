"""A real nats-server and a real event bus process."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from valet_event_bus.testing import Bus
from valet_service import broker
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
    await connection.close()


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
