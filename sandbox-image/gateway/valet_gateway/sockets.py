"""WebSockets to a program in the sandbox and back, message by message."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
from aiohttp import WSMsgType, web
from multidict import CIMultiDict
from valet_protocol.errors import Problem, Refused
from valet_service import logs

from valet_gateway import headers, limits
from valet_gateway.clients import Clients, Declined
from valet_gateway.directory import Backend
from valet_gateway.errors import HeadRefused
from valet_gateway.forwarding import Errand, refusal

log = logs.get(__name__)

ClientSide = web.WebSocketResponse[Any]
BackendSide = aiohttp.ClientWebSocketResponse[Any]
Side = ClientSide | BackendSide

_MESSAGES = frozenset({WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG})
_NO_CODE = frozenset({0, 1005, 1006, 1015})
"""Never on the wire (RFC 6455, 7.4.1): what a library says when there was none."""

_FAULTS = frozenset({1002, 1007, 1009})
"""What a message that cannot be is answered with."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a WebSocket ends."""

    code: int
    reason: str = ""


RESTARTING = Ending(code=1012, reason="the gateway restarts; connect again")


class DeclinedUpgrade(Refused):
    """The program refused the WebSocket; its status is passed on, and its problem document if it gave one."""

    title = "WebSocket refused"

    def __init__(self, declined: Declined, backend: Backend) -> None:
        self.status = declined.status if 400 <= declined.status < 600 else 502
        title = backend.title[0].upper() + backend.title[1:]
        super().__init__("websocket_refused", f"{title} refused the WebSocket with the status {declined.status}.")
        try:
            self._said = msgspec.json.decode(declined.body, type=Problem)
        except msgspec.MsgspecError:
            self._said = super().problem()

    def problem(self) -> Problem:
        return msgspec.structs.replace(self._said, status=self.status)


class _Client(web.WebSocketResponse[Any]):
    """A client's side, which says why it ends when the library ends it for a message that cannot be."""

    async def close(self, *, code: int = 1000, message: bytes = b"", drain: bool = True) -> bool:
        if code in _FAULTS and not message:
            message = _why(code).encode()
        return await super().close(code=code, message=message, drain=drain)


class Sockets:
    """All open WebSockets, so that they can be ended in order."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[None], Callable[[Ending], Awaitable[None]]] = {}
        self._of: dict[asyncio.Task[object], asyncio.Task[None]] = {}
        """By the task that answers the request it began with."""

    async def keep(self, work: Awaitable[None], end: Callable[[Ending], Awaitable[None]]) -> None:
        """Wait for `work`, which lives as long as a WebSocket, and goes on to its own end when the connection under it
        is lost: what arrived before is still read. `end` closes the WebSocket from outside."""
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._open[task] = end
        task.add_done_callback(self._ended)
        answering = asyncio.current_task()
        assert answering is not None
        self._of[answering] = task
        try:
            await asyncio.shield(task)
        finally:
            del self._of[answering]

    async def end(self, answering: asyncio.Task[object] | None, ending: Ending) -> None:
        """End the WebSocket of a request that is being answered, if it is one."""
        task = self._of.get(answering) if answering else None
        if task in self._open:
            await self._open[task](ending)

    async def close(self) -> None:
        """End all of them."""
        ends = [end(RESTARTING) for end in self._open.values()]
        await asyncio.gather(*ends, return_exceptions=True)
        for task in list(self._open):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        if not task.cancelled() and (error := task.exception()):
            log.warning("websocket_failed", error=type(error).__name__)


def check_upgrade(request: web.BaseRequest) -> None:
    """Raises `HeadRefused` for a handshake that is none."""
    if request.method != "GET" or not web.WebSocketResponse().can_prepare(request):
        raise HeadRefused("This is no WebSocket handshake of version 13.")


def offered(request: web.BaseRequest) -> tuple[str, ...]:
    """The subprotocols a client offers."""
    lines = request.headers.getall("Sec-WebSocket-Protocol", [])
    return tuple(name for line in lines for part in line.split(",") if (name := part.strip()))


async def accept(request: web.BaseRequest, protocol: str | None, cookies: list[str]) -> ClientSide:
    """Accept a client's WebSocket."""
    client = _Client(
        autoclose=False,
        autoping=False,
        protocols=(protocol,) if protocol else (),
        compress=False,
        max_msg_size=limits.MESSAGE_BYTES,
        writer_limit=limits.SEND_AHEAD_BYTES,
        timeout=limits.CLOSE,
        decode_text=False,
    )
    for cookie in cookies:
        client.headers.add("Set-Cookie", cookie)
    await client.prepare(request)
    return client


async def connect(clients: Clients, errand: Errand, head: CIMultiDict[str], protocols: tuple[str, ...]) -> BackendSide:
    """Open a WebSocket to a program. Raises `BackendFailed`, `BackendSilent`, `DeclinedUpgrade`."""
    try:
        async with asyncio.timeout(limits.HANDSHAKE):
            return await clients.to(errand.backend.target, fresh=True).ws_connect(
                errand.url(),
                headers=head,
                protocols=protocols,
                autoclose=False,
                autoping=False,
                compress=0,
                max_msg_size=limits.MESSAGE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=limits.CLOSE),  # pyright: ignore[reportCallIssue]
                decode_text=False,
            )
    except Declined as declined:
        raise DeclinedUpgrade(declined, errand.backend) from None
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise refusal(error, errand.backend) from None


async def forward(request: web.BaseRequest, errand: Errand, clients: Clients, sockets: Sockets) -> ClientSide:
    """Join a client with a program until one of them ends it.

    The client is accepted once the program has accepted, with the program's choice of subprotocol. What a client sends
    before that waits in its connection, of which little is read ahead.
    """
    check_upgrade(request)
    head = headers.to_backend(request.headers.items(), errand.onward)
    backend = await connect(clients, errand, head, offered(request))
    try:
        client = await accept(request, backend.protocol, errand.cookies)
    except BaseException:
        await backend.close(code=1001)
        raise
    await sockets.keep(join(client, backend), lambda ending: close_both(client, backend, ending))
    return client


async def join(client: Side, backend: Side) -> None:
    """Pass messages both ways until one side ends, then end the other the same way."""
    up = asyncio.create_task(pump(client, backend, gone=Ending(code=1001, reason="the client is gone")))
    down = asyncio.create_task(pump(backend, client, gone=Ending(code=1011, reason="the program is gone")))
    try:
        done, _ = await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        # the other direction is not cancelled first: a side cut off while it is read loses what was sent to it
        await close_both(client, backend, (up if up in done else down).result())
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def pump(source: Side, sink: Side, *, gone: Ending) -> Ending:
    """Pass messages one way; how `source` ended. `gone`: what to say if it went without a close frame."""
    while True:
        message = await source.receive()
        if message.type in _MESSAGES:
            try:
                async with asyncio.timeout(limits.STALLED):
                    await sink.send_frame(message.data, message.type)
            except (ConnectionError, RuntimeError):
                return gone
            except TimeoutError:
                return Ending(code=1008, reason="too slow a reader")
        elif message.type is WSMsgType.CLOSE:
            return ending_of(message.data, message.extra)
        elif message.type is WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            return Ending(code=message.data.code, reason=_why(message.data.code))
        else:
            return gone


def _why(code: int) -> str:
    if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        return f"a message may have {limits.MESSAGE_BYTES} bytes here, and one had more"
    return "a message was not well-formed"


def ending_of(code: int | None, reason: str | None) -> Ending:
    """What a close frame said, as it may be said again."""
    cut = (reason or "").encode()[: limits.REASON_BYTES].decode(errors="ignore")
    return Ending(code=1000 if code is None or code in _NO_CODE else code, reason=cut)


async def close_both(client: Side, backend: Side, ending: Ending) -> None:
    """End both sides."""
    await asyncio.gather(close(client, ending), close(backend, ending), return_exceptions=True)


async def close(side: Side, ending: Ending) -> None:
    """End one side, whether or not it is still there."""
    try:
        async with asyncio.timeout(2 * limits.CLOSE):
            await side.close(code=ending.code, message=ending.reason.encode())
    except (TimeoutError, OSError, RuntimeError):
        log.debug("close_unheard", code=ending.code)
