"""`/pty*`: OpenCode's terminal routes on our processes, so that its clients work. A terminal whose program has ended is
gone here, as it is there."""

import codecs
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from aiohttp import web
from valet_protocol.errors import NotFound, Refused

from valet_processes import limits, opencode_shapes, requests
from valet_processes.attach import Attached
from valet_processes.connections import Connections, websocket
from valet_processes.manager import Manager
from valet_processes.opencode_shapes import PtyCreate, PtyUpdate, Shell
from valet_processes.process import Process
from valet_processes.replies import body, reply
from valet_processes.requests import Filter
from valet_processes.ring import Piece
from valet_processes.tickets import Tickets


class PtyRoutes:
    """Handlers; refusals have OpenCode's shapes."""

    def __init__(
        self, manager: Manager, connections: Connections, environment: Mapping[str, str], patience: float
    ) -> None:
        self._manager = manager
        self._connections = connections
        self._environment = environment
        self._patience = patience
        self._tickets = Tickets()

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [
            web.get("/pty/shells", _refusing(self._shells)),
            web.get("/pty", _refusing(self._list)),
            web.post("/pty", _refusing(self._create)),
            web.get("/pty/{id}", _refusing(self._get)),
            web.put("/pty/{id}", _refusing(self._update)),
            web.delete("/pty/{id}", _refusing(self._remove)),
            web.post("/pty/{id}/connect-token", _refusing(self._ticket)),
            web.get("/pty/{id}/connect", _refusing(self._connect), allow_head=False),
        ]

    async def _shells(self, request: web.Request) -> web.StreamResponse:
        return reply(_shells())

    async def _list(self, request: web.Request) -> web.StreamResponse:
        running = self._manager.matching(Filter(status="running", pty=True))
        return reply([opencode_shapes.pty(info) for info in running])

    async def _create(self, request: web.Request) -> web.StreamResponse:
        wanted = requests.decode(await body(request) or b"{}", PtyCreate)
        shell = opencode_shapes.preferred(self._environment.get("SHELL"), _shells())
        create = opencode_shapes.create(wanted, shell=shell, directory=request.query.get("directory"))
        return reply(opencode_shapes.pty(self._manager.create(create, environment=opencode_shapes.ENVIRONMENT)))

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return reply(opencode_shapes.pty(self._terminal(request).snapshot()))

    async def _update(self, request: web.Request) -> web.StreamResponse:
        wanted = requests.decode(await body(request), PtyUpdate)
        process = self._terminal(request)
        if wanted.title:
            self._manager.relabel(process, wanted.title)
        if wanted.size:
            self._manager.resize(process, wanted.size)
        return reply(opencode_shapes.pty(process.snapshot()))

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        await self._manager.delete(self._terminal(request))
        return reply(True)

    async def _ticket(self, request: web.Request) -> web.StreamResponse:
        process = self._terminal(request)
        if request.headers.get("x-opencode-ticket") != "1":  # a form of a foreign page cannot set it
            message = "A ticket is given for requests with the header x-opencode-ticket: 1"
            return reply({"_tag": "PtyForbiddenError", "message": message}, status=403)
        ticket = secrets.token_urlsafe(24)
        self._tickets.issue(ticket, process.info.id, time.monotonic())
        return reply({"ticket": ticket, "expires_in": int(limits.TICKET_AGE)})

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        process = self._terminal(request)
        ticket = request.query.get("ticket")
        if ticket is not None and not self._tickets.use(ticket, process.info.id, time.monotonic()):
            return reply({"_tag": "Forbidden"}, status=403)
        ring = process.output.ring
        cursor = request.query.get("cursor", "")
        if cursor == "-1":
            first = ring.end
        else:
            first = ring.offset_of(int(cursor)) if cursor.isascii() and cursor.isdigit() else ring.start
        with self._connections.one(request):
            socket = websocket(request)
            await socket.prepare(request)
            await _follow(process, socket, max(first, ring.start), self._patience)
        return socket

    def _terminal(self, request: web.Request) -> Process:
        id = request.match_info["id"]
        process = self._manager.known(opencode_shapes.process_id(id))
        if process is None or not process.info.pty or process.exited.is_set():
            raise NotFound("process_not_found", f"PTY session not found: {id}")
        return process


async def _follow(process: Process, socket: web.WebSocketResponse, first: int, patience: float) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    sent_units = process.output.ring.units_at(first)

    async def send(piece: Piece) -> None:
        nonlocal sent_units
        text = decoder.decode(piece.data)
        if text:
            sent_units += len(text.encode("utf-16-le", "surrogatepass")) // 2
            await socket.send_str(text)

    async def received(message: str | bytes) -> None:
        try:
            await process.write_when_read(message.encode() if isinstance(message, str) else message)
        except Refused:
            return  # its protocol has no words for it

    async def replayed() -> None:
        await socket.send_bytes(b"\0" + msgspec.json.encode({"cursor": sent_units}))

    async def nothing() -> None:
        pass

    client = Attached(process, socket, cursor=first, patience=patience, send=send, received=received)
    await client.run(greet=nothing, replayed=replayed, ended=nothing)


def _refusing(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotFound as error:
            if request.path.endswith("/connect"):
                return reply({"name": "NotFoundError", "data": {"message": error.detail}}, status=404)
            message = {"_tag": "PtyNotFoundError", "ptyID": request.match_info.get("id", ""), "message": error.detail}
            return reply(message, status=404)
        except Refused as error:
            status = error.status if error.status >= 429 else 400
            return reply({"_tag": "InvalidRequestError", "message": error.detail, "kind": error.code}, status=status)

    return handle


def _shells() -> list[Shell]:
    try:
        listed = Path("/etc/shells").read_text()
    except OSError:
        listed = "/bin/bash\n/bin/sh\n"
    paths = [line.partition("#")[0].strip() for line in listed.splitlines()]
    return opencode_shapes.shells(listed, [path for path in paths if path and os.access(path, os.X_OK)])
