"""Real NATS, real PostgreSQL, real ledger processes. Fake: sandboxes and runners (`valet_session_ledger.testing`)."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from valet_local import layout
from valet_local import postgres as embedded
from valet_protocol.ids import new_id
from valet_service import broker
from valet_service.outbox import Outbox
from valet_service.settings import Settings, parse_shards
from valet_service.testing import BrokerProcess
from valet_session_ledger.testing import LedgerProcess, Platform

START = 20.0
"""Seconds for a process to start on a busy machine."""


class DatabaseProcess:
    """An embedded PostgreSQL that can be killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        places = layout.layout(data_dir)
        layout.prepare(places)
        self._server = embedded.prepare(places)
        self.url = self._server.url
        self._log = data_dir / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._server.command, stdout=log, stderr=log)
        deadline = time.monotonic() + START
        while not embedded.is_ready(self._server.data, self._pid()):
            assert self._process.poll() is None, self._log.read_text()[-800:]
            assert time.monotonic() < deadline, self._log.read_text()[-800:]
            time.sleep(0.01)

    def kill(self) -> None:
        """kill -9, of the server and what it leaves."""
        if self._process is not None:
            os.kill(self._pid(), signal.SIGKILL)
            self._process.wait()
            self._process = None
            embedded.clear_remains(self._server.data)

    def _pid(self) -> int:
        assert self._process
        return self._process.pid


@pytest.fixture(scope="session")
def database_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseProcess]:
    process = DatabaseProcess(tmp_path_factory.mktemp("pg"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[DatabaseProcess]:
    """A server that a test may kill: its recovery does not replay what other tests did."""
    process = DatabaseProcess(tmp_path / "pg")
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def database_url(database_process: DatabaseProcess) -> str:
    """An empty database of the test's own, in the one server."""
    name = f"t{new_id().lower()}"
    connection = await asyncpg.connect(database_process.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    base, _, query = database_process.url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}?{query}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "nats") as process:
        yield process


@pytest.fixture
def settings(server: BrokerProcess, database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        nats_url=server.url,
        nats_creds=None,
        database_url=database_url,
        data_dir=tmp_path,
        run_dir=tmp_path,
        keys_dir=tmp_path,
        config=None,
        log_level="info",
        shards=parse_shards("0-15"),
    )


@pytest.fixture
def ledger(settings: Settings) -> Iterator[LedgerProcess]:
    process = LedgerProcess(settings)
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def platform(server: BrokerProcess, settings: Settings) -> AsyncIterator[Platform]:
    nc = await server.connect()
    await broker.ensure_stream(nc)
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        yield Platform(nc, outbox)
    await broker.close(nc)
