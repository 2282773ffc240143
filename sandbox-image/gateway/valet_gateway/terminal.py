"""The terminal below `/ttyd/`: our page, and ttyd's WebSocket on the shared shell of the process service."""

import asyncio
import secrets
from pathlib import Path

import msgspec
from aiohttp import WSMsgType, web
from valet_protocol.errors import NotFound, Refused
from valet_service import logs

from valet_gateway import limits, pages, sockets, terminal_page, ttyd_protocol
from valet_gateway.clients import Clients
from valet_gateway.directory import Directory
from valet_gateway.errors import HeadRefused, MethodRefused
from valet_gateway.process_service import ProcessService
from valet_gateway.sockets import BackendSide, ClientSide, Ending, Sockets
from valet_gateway.ttyd_protocol import Input, Pause, Size

log = logs.get(__name__)

ENDED = Ending(code=1000, reason="the shell has ended")
_LOST = Ending(code=1012, reason="the process service was lost; connect again")
_GONE = Ending(code=1001, reason="the page is gone")


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A text message of the process service."""

    type: str
    offset: int = 0


class Terminal:
    """Answers everything below `/ttyd/` while no ttyd of its own is in the sandbox."""

    def __init__(
        self, *, directory: Directory, clients: Clients, sockets: Sockets, xterm: Path | None, frames: str
    ) -> None:
        """`xterm`: the folder of the unpacked npm packages. `frames`: who may show the page in a frame."""
        self._frames = frames
        self._directory = directory
        self._clients = clients
        self._sockets = sockets
        self._xterm = xterm

    async def answer(
        self, request: web.BaseRequest, path: str, cookies: list[str], *, upgrade: bool
    ) -> web.StreamResponse:
        """Answer a request for `path`, as it is below `/ttyd`. Raises `Refused`."""
        if path == "/ws":
            return await self._websocket(request, cookies, upgrade=upgrade)
        if request.method not in ("GET", "HEAD"):
            raise MethodRefused("GET", "HEAD")
        response = self._read(path)
        for cookie in cookies:
            response.headers.add("Set-Cookie", cookie)
        return response

    def _read(self, path: str) -> web.StreamResponse:
        if path == "/":
            missing = terminal_page.missing(self._xterm)
            if missing:
                return terminal_page.absent(missing, self._frames)
            return terminal_page.page(self._xterm, secrets.token_urlsafe(16), self._frames)
        if path == "/token":
            return pages.document({"token": ""})
        file = terminal_page.file(path, self._xterm)
        if file is None or not file.is_file():
            raise NotFound("no_page", "The terminal has no such file.")
        return web.FileResponse(file, headers={"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})

    async def _websocket(self, request: web.BaseRequest, cookies: list[str], *, upgrade: bool) -> web.StreamResponse:
        if not upgrade or ttyd_protocol.SUBPROTOCOL not in sockets.offered(request):
            raise HeadRefused("The terminal is a WebSocket with the subprotocol 'tty'.")
        sockets.check_upgrade(request)
        client = await sockets.accept(request, ttyd_protocol.SUBPROTOCOL, cookies)
        await self._sockets.keep(self._serve(client), lambda ending: sockets.close(client, ending))
        return client

    async def _serve(self, client: ClientSide) -> None:
        try:
            ending = await self._converse(client)
        except Refused as refused:
            log.warning("terminal_failed", code=refused.code, detail=refused.detail)
            ending = sockets.ending_of(1013, refused.detail)
        await sockets.close(client, ending)

    async def _converse(self, client: ClientSide) -> Ending:
        try:
            async with asyncio.timeout(limits.HELLO_WAIT):
                first = await client.receive()
        except TimeoutError:
            return Ending(code=1002, reason="the first message must be the size, as JSON")
        if first.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return _GONE
        size = ttyd_protocol.hello(first.data)
        if size is None:
            return Ending(code=1002, reason="the first message must be the size, as JSON")
        service = ProcessService(self._directory.processes, self._clients)
        shell = await service.shell(size)
        process = await service.connect(shell)
        try:
            await client.send_bytes(ttyd_protocol.title("Terminal"))
            await client.send_bytes(ttyd_protocol.preferences())
            marked = ttyd_protocol.wants_mark(first.data)
            return await _join(client, process, mark=shell.output_bytes if marked else None)
        except (ConnectionError, RuntimeError):
            return _GONE
        finally:
            await sockets.close(process, _GONE)


async def _join(client: ClientSide, process: BackendSide, *, mark: int | None) -> Ending:
    flowing = asyncio.Event()
    flowing.set()
    keys = asyncio.create_task(_keys(client, process, flowing))
    output = asyncio.create_task(_output(process, client, flowing, mark))
    try:
        done, _ = await asyncio.wait((keys, output), return_when=asyncio.FIRST_COMPLETED)
        ending = (output if output in done else keys).result()
        # before anything is cancelled: a side cut off while it is read loses what was sent to it
        await sockets.close_both(client, process, ending)
        return ending
    finally:
        for task in (keys, output):
            task.cancel()
        await asyncio.gather(keys, output, return_exceptions=True)


async def _keys(client: ClientSide, process: BackendSide, flowing: asyncio.Event) -> Ending:
    while True:
        message = await client.receive()
        match message.type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                match ttyd_protocol.said(message.data):
                    case Input(data=data):
                        await process.send_bytes(data)
                    case Size(rows=rows, columns=columns):
                        await process.send_str(
                            msgspec.json.encode({"type": "resize", "rows": rows, "cols": columns}).decode()
                        )
                    case Pause(paused=paused):
                        flowing.clear() if paused else flowing.set()
                    case None:
                        pass
            case WSMsgType.PING:
                await client.pong(message.data)
            case WSMsgType.PONG:
                pass
            case _:
                return _GONE


async def _output(process: BackendSide, client: ClientSide, flowing: asyncio.Event, mark: int | None) -> Ending:
    """Pass the shell's output on. `mark`: the offset at which the client is told that what follows is new."""
    cut = False
    position = 0
    while True:
        message = await process.receive()
        match message.type:
            case WSMsgType.BINARY:
                data = message.data
                position += len(data)
                if cut:  # not from the middle of a line, perhaps of an escape sequence
                    data = data.partition(b"\n")[2] or data
                    cut = False
                await flowing.wait()
                await client.send_bytes(ttyd_protocol.output(data))
            case WSMsgType.TEXT:
                said = msgspec.json.decode(message.data, type=Said)
                if said.type == "exited":
                    return ENDED
                if said.type == "hello":
                    position, cut = said.offset, said.offset > 0
            case WSMsgType.PING:
                await process.pong(message.data)
            case WSMsgType.PONG:
                pass
            case _:
                return _LOST
        if mark is not None and position >= mark:
            mark = None
            await client.send_bytes(ttyd_protocol.history_ends())
