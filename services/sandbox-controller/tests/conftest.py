"""Sandboxes for tests, all ended afterwards."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from valet_local import keys, nats, postgres
from valet_local.layout import Layout, layout, prepare
from valet_sandbox_controller.provider import SandboxRef
from valet_sandbox_controller.providers.storage import Record
from valet_sandbox_controller.testing import LocalProvider, local_provider


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """Short, because of unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="vsc-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def make_provider(tmp_path: Path, run_dir: Path) -> AsyncIterator[Callable[[str], LocalProvider]]:
    """Providers over the same directories; whatever is still recorded as running is ended."""
    made: list[LocalProvider] = []

    def make(kind: str) -> LocalProvider:
        made.append(local_provider(kind, tmp_path / "data", run_dir))
        return made[-1]

    yield make
    for file in (run_dir / "sandboxes").glob("*.json"):
        record = msgspec.json.decode(file.read_bytes(), type=Record)
        ref = SandboxRef(provider="", id=file.stem, pid=record.pid, start_time=record.start_time)
        await made[0].terminate(ref, grace=0)


@pytest.fixture
def bwrap(make_provider: Callable[[str], LocalProvider]) -> LocalProvider:
    return make_provider("bwrap")


class Servers:
    """Real NATS (with the platform's own authentication) and real PostgreSQL, and how a service is told of them."""

    def __init__(
        self, places: Layout, broker: nats.NatsServer, database_url: str, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        self.places = places
        self.processes = processes
        self.broker = broker
        self.database_url = database_url

    def environment(self, service: str, **more: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("VALET_")},
            "VALET_NATS_URL": self.broker.url,
            "VALET_NATS_CREDS": str(self.creds(service)),
            "VALET_DATABASE_URL": self.database_url,
            "VALET_DATA_DIR": str(self.places.data),
            "VALET_RUN_DIR": str(self.places.run),
            "VALET_KEYS_DIR": str(self.places.keys),
            "VALET_OPENCODE_BIN": "/bin/true",
            **more,
        }

    def creds(self, service: str) -> Path:
        return self.places.creds / f"{service}.creds"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    root = Path(tempfile.mkdtemp(prefix="vsc-"))
    places = layout(root / "d")
    prepare(places)
    broker = nats.prepare(places, keys.ensure(places).trust, nats.find_binary())
    database = postgres.prepare(places)
    children = [
        subprocess.Popen([broker.binary, "-c", broker.config], stderr=subprocess.DEVNULL),
        subprocess.Popen(database.command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL),
    ]
    asyncio.run(asyncio.wait_for(nats.wait_ready(broker.port), 10))
    deadline = time.monotonic() + 20
    while not postgres.is_ready(places.postgres, children[1].pid):
        assert time.monotonic() < deadline, "PostgreSQL did not get ready"
        time.sleep(0.02)
    yield Servers(places, broker, database.url, children)
    children[1].send_signal(signal.SIGINT)
    children[0].terminate()
    for child in children:
        child.wait(20)
    shutil.rmtree(root)


class Service:
    """A service as a child process, ready when it says so."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, log.open("ab") as stderr:
            address = f"\0vsc-{os.getpid()}-{time.monotonic_ns()}"
            channel.bind(address)
            channel.settimeout(20)
            self.process = subprocess.Popen(
                command, env=environment | {"NOTIFY_SOCKET": "@" + address[1:]}, stderr=stderr, start_new_session=True
            )
            try:
                assert channel.recv(100) == b"READY=1"
            except TimeoutError:
                raise AssertionError(f"not ready:\n{log.read_text()[-3000:]}") from None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Seconds it took."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(10)
        return time.monotonic() - began


@pytest.fixture
def start_service(servers: Servers, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """`start_service("sandbox-controller" | "portal", …environment)`; what still runs at the end is stopped."""
    started: list[Service] = []

    def start(name: str, **environment: str) -> Service:
        runner = "from valet_sandbox_controller import app, testing; from valet_service import lifecycle; "
        command = {
            # the service itself with the scripted runner in place of the real one
            "sandbox-controller": ["-c", f"{runner}app.RUNNER = testing.SCRIPTED; lifecycle.run(app.NAME, app.main)"],
            "portal": ["-m", "valet_sandbox_controller.portal"],
        }[name]
        told = servers.environment(name, **environment)
        started.append(Service([sys.executable, *command], told, tmp_path / f"{name}.log"))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="module")
def shared_portal(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A portal for all tests of a module; for those that neither configure nor end it."""
    command = [sys.executable, "-m", "valet_sandbox_controller.portal"]
    service = Service(command, servers.environment("portal"), tmp_path_factory.mktemp("portal") / "portal.log")
    yield service
    service.stop()
