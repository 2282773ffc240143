"""A real NATS server for each test: it starts in some 30 ms, and may be killed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from valet_service import broker
from valet_service.testing import BrokerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "nats") as process:
        yield process


@pytest.fixture
async def nc(server: BrokerProcess) -> AsyncIterator[Client]:
    """A connection that reconnects, to a broker that has the log's stream."""
    connection = await server.connect()
    await broker.ensure_stream(connection)
    yield connection
    await broker.close(connection)
