"""The ledger's fixtures with the stock images of docker-compose.yml in place of the embedded servers.

Needs a Docker engine that has the images or can pull them; tests are skipped with the reason where it does not.
"""

import asyncio
import importlib.util
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import docker
import pytest
import yaml
from docker.errors import APIError, DockerException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from valet_service.testing import BrokerProcess

ROOT = Path(__file__).parents[3]
START = 60.0
"""Seconds for a container to serve, on a busy machine; an idle one needs one to three."""

ENGINE_TIMEOUT = 10
"""Seconds for the engine to answer."""

# The fixtures end their containers themselves; the reaper would be one more image to pull.
testcontainers_config.ryuk_disabled = True

_spec = importlib.util.spec_from_file_location(
    "session_ledger_fixtures", ROOT / "services" / "session-ledger" / "tests" / "conftest.py"
)
assert _spec
assert _spec.loader
_ledger = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _ledger
_spec.loader.exec_module(_ledger)
for _name in ("database_url", "settings", "ledger", "platform"):
    globals()[_name] = getattr(_ledger, _name)


class Container:
    """A container whose main process can be killed and started again, on a port and a store that stay."""

    def __init__(self, image: str, port: int, command: list[str], environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._container = DockerContainer(image).with_command(command).with_envs(**environment)
        self._container.ports[f"{port}/tcp"] = ("127.0.0.1", self.port)  # type: ignore[assignment]
        self._made = False

    def start(self) -> None:
        if self._made:
            self._container.get_wrapped_container().start()
        else:
            self._made = True
            self._container.start()

    def kill(self) -> None:
        """kill -9."""
        self._container.get_wrapped_container().kill()

    def remove(self) -> None:
        if self._made:
            self._container.stop()

    def log(self) -> str:
        return self._container.get_wrapped_container().logs(tail=20).decode(errors="replace")


class StockBroker(BrokerProcess):
    """The stock NATS image as the test's own server."""

    def __init__(self) -> None:
        # what BrokerProcess configures, too; this image's server reads its settings from a file only
        config = "port: 4222\nmax_payload: 8MB\njetstream { store_dir: /data }\n"
        script = 'printf "%s" "$CONFIG" > /tmp/nats.conf && exec nats-server -c /tmp/nats.conf'
        self._container = Container(image_of("nats"), 4222, ["sh", "-c", script], {"CONFIG": config})
        self.port = self._container.port
        self.url = f"nats://127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        self._container.remove()

    def start(self) -> None:
        self._container.start()
        deadline = time.monotonic() + START
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                    if probe.recv(5) == b"INFO ":
                        return
            except OSError:
                pass  # not yet: the engine's proxy takes connections before the server does
            assert time.monotonic() < deadline, self._container.log()
            time.sleep(0.05)

    def kill(self) -> None:
        self._container.kill()


class StockDatabase:
    """The stock PostgreSQL image as a server that can be killed and started again."""

    def __init__(self) -> None:
        password = "only-for-this-test"
        environment = {"POSTGRES_USER": "valet", "POSTGRES_DB": "valet", "POSTGRES_PASSWORD": password}
        # a cluster of the image's own volume, which is removed with the container
        environment |= {"POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C"}
        self._container = Container(image_of("postgres"), 5432, ["postgres"], environment)
        self.url = f"postgresql://valet:{password}@127.0.0.1:{self._container.port}/valet"

    def start(self) -> None:
        self._container.start()
        with ThreadPoolExecutor(1) as apart:  # a test may call this from its own event loop
            apart.submit(lambda: asyncio.run(self._ready())).result()

    def kill(self) -> None:
        self._container.kill()

    def remove(self) -> None:
        self._container.remove()

    async def _ready(self) -> None:
        deadline = time.monotonic() + START
        while True:
            try:
                await (await asyncpg.connect(self.url, timeout=2)).close()
            except (OSError, TimeoutError, asyncpg.PostgresError):
                assert time.monotonic() < deadline, self._container.log()
                await asyncio.sleep(0.05)
            else:
                return


def image_of(service: str) -> str:
    """The image docker-compose.yml uses."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]["image"]


@pytest.fixture(autouse=True)
def _sessions_end() -> None:
    """In the place of the whole-system tests' own: the `platform` here is the ledger's stand-in, which has no API to
    end sessions by, and every test has a ledger to itself."""


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker engine with the stock images."""
    try:
        client = docker.from_env(timeout=ENGINE_TIMEOUT)
        client.ping()
    except DockerException as error:
        pytest.skip(f"no Docker engine answers: {error}")
    for image in (image_of("nats"), image_of("postgres")):
        try:
            if not client.images.list(name=image):
                client.images.pull(image)
        except (APIError, OSError) as error:
            pytest.skip(f"{image} is not here and cannot be pulled: {error}")
    yield
    client.close()


@pytest.fixture
def server(engine: None) -> Iterator[StockBroker]:
    with StockBroker() as broker:
        assert isinstance(broker, StockBroker)
        yield broker


@pytest.fixture(scope="session")
def database_process(engine: None) -> Iterator[StockDatabase]:
    database = StockDatabase()
    try:
        database.start()
        yield database
    finally:
        database.remove()


@pytest.fixture
def own_database(engine: None) -> Iterator[StockDatabase]:
    """A server that a test may kill."""
    database = StockDatabase()
    try:
        database.start()
        yield database
    finally:
        database.remove()
