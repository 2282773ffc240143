"""What the gateway asks of the process service for its terminal: the shared shell."""

import asyncio

import aiohttp
import msgspec
from multidict import CIMultiDict
from valet_protocol.errors import Problem, Refused, Unavailable, from_problem
from valet_protocol.events.machine import ProcessInfo

from valet_gateway import limits, sockets
from valet_gateway.clients import Clients
from valet_gateway.directory import Backend
from valet_gateway.errors import BackendFailed
from valet_gateway.forwarding import Errand, refusal
from valet_gateway.headers import Onward
from valet_gateway.sockets import BackendSide
from valet_gateway.ttyd_protocol import Size

TAG = "terminal"
"""By which the shared shell is found."""

_SHELL = "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l"


class ProcessService:
    """The process service, asked for one shell that all pages share."""

    def __init__(self, backend: Backend, clients: Clients) -> None:
        self._backend = backend
        self._clients = clients

    async def shell(self, size: Size) -> ProcessInfo:
        """The shared shell at this size, made if there is none or it has ended. Raises `Refused`."""
        for _ in range(limits.TERMINAL_TRIES):
            status, body = await self._ask("GET", f"/v1/processes/{TAG}")
            if status == 200 and (found := self._process(body)).status == "running":
                # it may end between the two calls; then its connection says so
                await self._ask("POST", f"/v1/processes/{found.id}/resize", {"rows": size.rows, "cols": size.columns})
                return found
            if status not in (200, 404):
                raise self._refused(status, body)
            status, body = await self._ask(
                "POST",
                "/v1/processes",
                {
                    "command": "sh",
                    "args": ["-c", _SHELL],
                    "env": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
                    "tag": TAG,
                    "label": "Terminal",
                    "pty": {"rows": size.rows, "cols": size.columns},
                },
            )
            if status == 201:
                return self._process(body)
            if status != 409:  # another page made it at the same time
                raise self._refused(status, body)
        raise Unavailable(
            "terminal_busy", "The shell ends as soon as it starts; look at the workspace's shell profile."
        )

    async def connect(self, process: ProcessInfo) -> BackendSide:
        """Its recent output, then what follows. Raises `Refused`."""
        offset = max(0, process.output_bytes - limits.SCROLLBACK_BYTES)
        errand = Errand(
            backend=self._backend,
            path=f"/v1/processes/{process.id}/connect",
            query=f"offset={offset}",
            onward=Onward(host="localhost", prefix="", secure=False, peer=None, subject=""),
            cookies=[],
        )
        return await sockets.connect(self._clients, errand, CIMultiDict(), ())

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        client = self._clients.to(self._backend.target, fresh=method != "GET")
        data = None if body is None else msgspec.json.encode(body)
        head = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(limits.PROCESS_REQUEST),
                client.request(method, self._backend.target.base + path, data=data, headers=head) as response,
            ):
                return response.status, await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise refusal(error, self._backend) from None

    def _process(self, body: bytes) -> ProcessInfo:
        try:
            return msgspec.json.decode(body, type=ProcessInfo)
        except msgspec.MsgspecError as error:
            raise BackendFailed(f"The process service answered what is no process: {error}") from None

    def _refused(self, status: int, body: bytes) -> Refused:
        try:
            return from_problem(msgspec.json.decode(body, type=Problem))
        except msgspec.MsgspecError:
            return BackendFailed(f"The process service answered {status}.")
