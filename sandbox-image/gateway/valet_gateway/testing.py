"""A gateway to test against: the real process, and a program behind it. For this package's tests and its users'."""

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from aiohttp import web
from valet_protocol.sandbox_spec import GatewaySpec
from valet_service import sandbox_token
from valet_service.sandbox_token import Claims, Service

START_TIMEOUT = 60.0
"""Seconds until a gateway says that it is ready: half a second alone, much more on a busy machine."""

SECRET = b"s" * 32
SESSION = "ses_tested"
KEY = sandbox_token.key(SECRET, SESSION)
TOOLS_TOKEN = "tools-token-of-the-tests"


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


WRITERS = {"usr_1": 0, "usr_9": 0}
"""Who may be in the sandbox of a gateway that was just started: by user id, since when."""


def token(service: Service = "*", *, sub: str = "usr_1", sid: str = SESSION, seconds: int = 600, seq: int = 0) -> str:
    """A token of the tested session, given out when its log ended at `seq`."""
    return sandbox_token.mint(KEY, Claims(sub=sub, sid=sid, svc=service, exp=int(time.time()) + seconds, seq=seq))


def spec(folder: Path, *, services: dict[str, str] | None = None, xterm_dir: str | None = None) -> GatewaySpec:
    """A gateway whose files are in a folder (a short path: there are sockets in it), on a free port."""
    return GatewaySpec(
        session_id=SESSION,
        key=KEY,
        tools_token=TOOLS_TOKEN,
        socket=str(folder / "gateway.sock"),
        port=free_port(),
        control_socket=str(folder / "control.sock"),
        tools_socket=str(folder / "tools.sock"),
        processes_socket=str(folder / "processes.sock"),
        state_dir=str(folder / "state"),
        xterm_dir=xterm_dir,
        services=services or {},
    )


class GatewayProcess:
    """`python -m valet_gateway`, running between `async with`; its log is kept in a file."""

    def __init__(self, spec: GatewaySpec) -> None:
        self.spec = spec
        self.log = Path(spec.control_socket).with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it serves, by TCP."""
        return f"http://127.0.0.1:{self.spec.port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self, writers: Mapping[str, int] | None = WRITERS) -> None:
        """Start it, wait until it serves, and say who may come in, if that is to be said."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "valet_gateway",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(msgspec.json.encode(self.spec))
        self._process.stdin.close()
        async with asyncio.timeout(START_TIMEOUT):
            said = await self._process.stdout.readline()
        if said != b"READY\n":
            raise RuntimeError(f"the gateway did not start: {self.log.read_text()}")
        if writers is not None:
            assert await self.access(0, writers) == 200

    async def access(self, seq: int, writers: Mapping[str, int]) -> int:
        """Say who may be in the sandbox, as the log has it at `seq`; the status of the answer."""
        return (await self.control("PUT", "/access", {"seq": seq, "since": writers}))[0]

    async def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def terminate(self) -> int:
        """Ask it to end; its exit status."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(START_TIMEOUT):
            return await self._process.wait()

    def memory(self, field: str = "VmRSS") -> int:
        """Its memory now (`VmRSS`) or at its highest (`VmHWM`), bytes (Linux)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

    async def control(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Ask its control socket."""
        connector = aiohttp.UnixConnector(self.spec.control_socket)
        data = None if body is None else msgspec.json.encode(body)
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.request(method, "http://gateway" + path, data=data) as response,
        ):
            return response.status, msgspec.json.decode(await response.read())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


class Program:
    """A program in the sandbox that serves HTTP, on a port or a unix socket, between `async with`."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], path: str | None = None
    ) -> None:
        self._runner: web.ServerRunner | None = None
        self._handler = handler
        self._path = path
        self.port = 0

    @property
    def target(self) -> str:
        """As a gateway's spec names it."""
        return f"unix:{self._path}" if self._path else f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        server = web.Server(self._handler, access_log=None, auto_decompress=False, read_bufsize=1 << 18)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        if self._path:
            await web.UnixSite(self._runner, self._path).start()
        else:
            self.port = self.port or free_port()
            await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


def folder() -> "tempfile.TemporaryDirectory[str]":
    """A temporary folder whose path is short enough for sockets."""
    return tempfile.TemporaryDirectory(prefix="vg-")
