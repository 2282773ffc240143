"""A real api process on a real broker, a real database and a real event bus; only the ledger is a fake."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from nats.aio.client import Client
from valet_api.testing import FakeLedger
from valet_event_bus.testing import START, Bus
from valet_local import layout, postgres
from valet_protocol.ids import new_id
from valet_service import broker
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

TOKEN = "owner-token-of-these-tests"

CONFIG = """
default_model = "scripted/one"

[providers.scripted]
base_url = "http://127.0.0.1:9/v1"
models = ["one", "two"]
"""


class Database:
    """The embedded PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        places = layout.layout(folder)
        layout.prepare(places)
        self._prepared = postgres.prepare(places)
        self.url = self._prepared.url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        postgres.clear_remains(self._prepared.data)
        self._process = subprocess.Popen(
            self._prepared.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until = time.monotonic() + START
        while not postgres.is_ready(self._prepared.data, self._process.pid):
            assert time.monotonic() < until, "PostgreSQL does not get ready"
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(5)
            self._process = None
            postgres.clear_remains(self._prepared.data)


class Api:
    """`python -m valet_api`, started as the supervisor starts it."""

    def __init__(self, nats: BrokerProcess, database_url: str, run_dir: Path, config: str | None = CONFIG) -> None:
        self._run_dir = run_dir
        (run_dir / "token").write_text(TOKEN + "\n")
        (run_dir / "keys").mkdir(exist_ok=True)
        (run_dir / "keys" / "secret").write_bytes(b"s" * 32)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = TOKEN
        keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
        self._environ = {name: value for name, value in os.environ.items() if name not in keys} | {
            "VALET_NATS_URL": nats.url,
            "VALET_DATABASE_URL": database_url,
            "VALET_RUN_DIR": str(run_dir),
            "VALET_DATA_DIR": str(run_dir),
            "VALET_ADMIN_TOKEN_FILE": str(run_dir / "token"),
            "VALET_API_PORT": str(self.port),
            "NOTIFY_SOCKET": str(run_dir / "api-notify.sock"),
        }
        if config is not None:
            (run_dir / "valet.toml").write_text(config)
            self._environ["VALET_CONFIG"] = str(run_dir / "valet.toml")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = self._run_dir / "api-notify.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(path))
            channel.settimeout(START)
            self.process = subprocess.Popen([sys.executable, "-m", "valet_api"], env=self._environ)
            assert channel.recv(100) == b"READY=1"

    async def announce(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body of the answer to a POST whose body is announced and never sent."""
        lines = [f"POST {path} HTTP/1.1", "host: x", f"authorization: Bearer {self.token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        body = await asyncio.wait_for(reader.readexactly(length), 5)
        writer.close()
        return int(head.split(" ")[1]), body.decode()

    def end(self) -> float:
        """Seconds it took to stop in order."""
        assert self.process
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(10)
        return time.monotonic() - began

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="valet-api-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def nats(folder: Path) -> Iterator[BrokerProcess]:
    (folder / "nats").mkdir()
    server = BrokerProcess(folder / "nats")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterator[Database]:
    server = Database(folder / "data")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def bus(nats: BrokerProcess, api: Api, folder: Path) -> Iterator[Bus]:
    service = Bus(nats, folder)
    service.start()
    yield service
    if service.process and service.process.poll() is None:
        service.end()


@pytest.fixture(scope="module")
def api(nats: BrokerProcess, database: Database, folder: Path) -> Iterator[Api]:
    service = Api(nats, database.url, folder)
    service.start()
    yield service
    service.kill()


@pytest.fixture
async def nc(nats: BrokerProcess) -> AsyncIterator[Client]:
    connection = await broker.connect(nats.url, name="test")
    await broker.ensure_stream(connection)
    yield connection
    await broker.close(connection)


@pytest.fixture
async def ledger(nc: Client) -> FakeLedger:
    fake = FakeLedger()
    await fake.serve(nc)
    return fake


@pytest.fixture
async def outbox(nats: BrokerProcess, nc: Client) -> AsyncIterator[Outbox]:
    async with Outbox(lambda: broker.connect(nats.url, name="test-outbox", reconnect=False)) as writer:
        yield writer


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """The owner."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=20) as http:
        yield http


@pytest.fixture
async def session(client: httpx.AsyncClient, ledger: FakeLedger) -> str:
    """A session of the owner."""
    response = await client.post("/api/sessions", json={})
    assert response.status_code == 201
    return response.json()["id"]


@pytest.fixture
async def other(api: Api, client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """Another user; their name is their `User-Agent`."""
    name = f"user-{new_id().lower()}"
    made = (await client.post("/api/users", json={"name": name})).json()
    headers = {"Authorization": f"Bearer {made['token']}", "User-Agent": name}
    async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=20) as http:
        yield http
