"""A session's sandbox from outside: the way in, as the platform gives it, and the processes in it."""

from types import TracebackType
from typing import Self

import msgspec
from valet_protocol.events.machine import ProcessInfo
from valet_protocol.ids import new_id
from websockets.asyncio.client import connect

from valet_local.cli import limits
from valet_local.cli.errors import ProcessGone
from valet_local.client import bodies
from valet_local.client.endpoint import Endpoint
from valet_local.client.errors import NotReachable
from valet_local.client.http import Client
from valet_local.client.transport import Transport, path_of

_WITHOUT_SANDBOX = frozenset({"lost", "hibernated", "failed", "terminated"})
"""Statuses of a session whose sandbox, and all that ran in it, is gone; what comes next is another one."""


class SandboxUrls(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses at a sandbox's gateway."""

    gateway: str
    vscode: str
    vnc: str
    ttyd: str
    processes: str
    tunnels: dict[str, str] = {}


class SandboxToken(msgspec.Struct, frozen=True, kw_only=True):
    """`GET …/sandbox-token`."""

    token: str
    expires_at: str
    urls: SandboxUrls


class TerminalSize(msgspec.Struct, frozen=True, kw_only=True):
    """In characters."""

    rows: int
    cols: int


class NewProcess(bodies.Body, frozen=True, kw_only=True):
    """`POST /v1/processes`."""

    command: str
    args: list[str] = []
    cwd: str | None = None
    tag: str | None = None
    label: str = ""
    pty: TerminalSize | None = None
    session_id: str | None = None
    keep_output: bool = False


class ProcessSignal(bodies.Body, frozen=True, kw_only=True):
    """`POST /v1/processes/{id}/signal`."""

    signal: str


class ProcessList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/processes`."""

    items: list[ProcessInfo]


class _Gateway(Transport):
    """A sandbox's gateway."""

    async def start(self, process: NewProcess, key: str) -> ProcessInfo:
        """Start a process; once for one key, whichever connection it comes by."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        content = msgspec.json.encode(process)
        return await self._ask("POST", "/v1/processes", ProcessInfo, headers=headers, content=content)


async def token(client: Client, session_id: str, service: str) -> SandboxToken:
    """A way into a session's sandbox. Raises `Refused`, e.g. `sandbox_not_running`."""
    return await client.read(path_of(session_id, "sandbox-token"), SandboxToken, {"service": service})


class Processes:
    """The processes of a session's sandbox. Use it as an async context manager.

    Raises what the client raises; `renew` and `resume` ask for the way in once more, after a restart or an hour.
    """

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._session_id = session_id
        self._epoch = 0
        """Of the sandbox that the processes are in: the next one of the session has another."""
        self._way: SandboxToken | None = None
        self._http: _Gateway | None = None

    async def __aenter__(self) -> Self:
        await self.renew()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def renew(self) -> None:
        """Ask for the way into the sandbox there is."""
        self._epoch = (await self._client.session(self._session_id)).epoch
        await self._enter()

    async def resume(self) -> None:
        """Ask for the way into the very same sandbox. Raises `ProcessGone` where it is there no more."""
        view = await self._client.session(self._session_id)
        if view.epoch != self._epoch:
            raise ProcessGone("the session has another sandbox now")
        if view.status in _WITHOUT_SANDBOX:
            raise ProcessGone(f"the session is {view.status} and has no sandbox")
        await self._enter()

    async def _enter(self) -> None:
        way = await token(self._client, self._session_id, "processes")
        if self._http is not None:
            await self._http.close()
        self._way = way
        endpoint = Endpoint(url=way.urls.gateway, token=way.token)
        self._http = _Gateway(endpoint, patience=limits.SANDBOX_PATIENCE)

    async def list(self) -> list[ProcessInfo]:
        """All that run, and those that ended lately."""
        assert self._http
        return (await self._http.read("/v1/processes", ProcessList)).items

    async def start(self, process: NewProcess) -> ProcessInfo:
        """Start one. Asked again, and at another address where the first gives no answer, it is started once."""
        assert self._http
        key = new_id()
        try:
            return await self._http.start(process, key)
        except NotReachable:
            await self.renew()
            return await self._http.start(process, key)

    async def signal(self, process_id: str, name: str) -> None:
        """To all of a process's group."""
        assert self._http
        await self._http.write("POST", f"/v1/processes/{process_id}/signal", ProcessInfo, ProcessSignal(signal=name))

    async def delete(self, process_id: str) -> None:
        """End a process if it runs, and remove its record."""
        assert self._http
        await self._http.write("DELETE", f"/v1/processes/{process_id}", ProcessInfo)

    def connect(self, process_id: str, offset: int) -> connect:
        """Its output from an offset on, and its input: `async with processes.connect(…) as connection`."""
        assert self._way
        url = self._way.urls.processes.replace("http", "ws", 1)
        return connect(
            f"{url}/{process_id}/connect?offset={offset}",
            additional_headers={"Authorization": f"Bearer {self._way.token}"},
            open_timeout=limits.SANDBOX_CONNECT,
            max_size=None,
            proxy=None,  # as for the platform itself
        )
