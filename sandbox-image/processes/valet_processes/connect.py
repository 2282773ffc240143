"""`GET /v1/processes/{id}/connect`: our WebSocket protocol.

To the client: a text frame `hello`; output as binary frames (of a terminal its bytes; else with one byte for the stream
before them); a text frame `exited` last. `refused` for what the client sent and could not be
done; the connection goes on.
"""

import msgspec
from aiohttp import web
from valet_protocol.errors import Refused
from valet_protocol.events.machine import ProcessInfo

from valet_processes import requests
from valet_processes.attach import Attached
from valet_processes.connections import Connections, websocket
from valet_processes.manager import Manager
from valet_processes.process import Process
from valet_processes.requests import CloseStdin, Resize, Signal
from valet_processes.ring import Piece


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """What follows, and what does not."""

    offset: int
    """Of the first byte that follows."""
    dropped: int
    """Bytes that were asked for and are no longer kept."""
    process: ProcessInfo


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    """It has ended and there is no more output."""

    exit_code: int | None
    signal: str | None
    offset: int
    """All it wrote."""


class RefusedFrame(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Something the client sent was not done."""

    code: str
    detail: str


Frame = Hello | Exited | RefusedFrame
"""A text frame from the service."""


class ConnectRoutes:
    """The handler and what it needs."""

    def __init__(self, manager: Manager, connections: Connections, patience: float) -> None:
        self._manager = manager
        self._connections = connections
        self._patience = patience

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [web.get("/v1/processes/{key}/connect", self._connect, allow_head=False)]

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        process = self._manager.find(request.match_info["key"])
        asked = requests.offset_in(request.query.get("offset"), end=process.output.end)
        with self._connections.one(request):
            socket = websocket(request)
            await socket.prepare(request)
            first = process.output.first_from(asked)
            hello = Hello(offset=first, dropped=first - asked, process=process.snapshot())
            await self._follow(process, socket, hello)
        return socket

    async def _follow(self, process: Process, socket: web.WebSocketResponse, hello: Hello) -> None:
        async def tell(frame: Frame) -> None:
            await socket.send_str(msgspec.json.encode(frame).decode())

        async def greet() -> None:
            await tell(hello)

        async def send(piece: Piece) -> None:
            prefix = b"" if process.info.pty else bytes([piece.stream])
            await socket.send_bytes(prefix + piece.data)

        async def received(message: str | bytes) -> None:
            try:
                await self._act(process, message)
            except Refused as error:
                await tell(RefusedFrame(code=error.code, detail=error.detail))

        async def replayed() -> None:
            pass

        async def ended() -> None:
            info = process.snapshot()
            await tell(Exited(exit_code=info.exit_code, signal=info.signal, offset=info.output_bytes))

        client = Attached(process, socket, cursor=hello.offset, patience=self._patience, send=send, received=received)
        await client.run(greet=greet, replayed=replayed, ended=ended)

    async def _act(self, process: Process, message: str | bytes) -> None:
        if isinstance(message, bytes):
            requests.check_input(message)
            await process.write_when_read(message)
            return
        match requests.control(message):
            case Resize() as size:
                self._manager.resize(process, size)
            case CloseStdin():
                process.close_input()
            case Signal(signal=name):
                process.send_signal(requests.signal_number(name))
