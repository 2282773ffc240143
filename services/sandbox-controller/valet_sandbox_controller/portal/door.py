"""A sandbox's connection to the portal: reads one request head and decides which way it goes."""

import asyncio
from collections.abc import Callable

from valet_service import logs

from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import heads
from valet_sandbox_controller.portal.dial import Dialler
from valet_sandbox_controller.portal.epochs import Epochs, Pass
from valet_sandbox_controller.portal.splice import as_transport, join

_log = logs.get(__name__)


class Door(asyncio.Protocol):
    """`CONNECT host:port`, `GET http://host/…`, `… /model/<provider>/…` or `… /objects/<name>`.

    Anything else is refused. `serve` gives who answers for a path of the portal's own.
    """

    def __init__(
        self, *, secret: bytes, epochs: Epochs, dialler: Dialler, serve: Callable[[str], asyncio.Protocol]
    ) -> None:
        self._secret = secret
        self._epochs = epochs
        self._dialler = dialler
        self._serve = serve
        self._leave: Pass | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_transport(transport)
        self._timer = asyncio.get_running_loop().call_later(limits.HEAD_TIMEOUT, self._transport.close)

    def data_received(self, data: bytes) -> None:
        assert self._transport
        self._received += data
        if self._task is not None:
            return  # between head and answer: kept for the other side
        head, end, rest = self._received.partition(b"\r\n\r\n")
        try:
            if not end and len(self._received) > limits.HEAD_BYTES:
                raise BadPortalRequest(431, "the request's head is too long")
            if end:
                self._stop_timer()
                self._route(self._transport, heads.parse(head), rest)
        except BadPortalRequest as refused:
            self._refuse(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
        if self._leave is not None:
            self._leave.end()

    def _route(self, transport: asyncio.Transport, head: heads.Head, rest: bytes) -> None:
        if head.target.startswith("/"):
            handler = self._serve(head.target)
            transport.set_protocol(handler)
            handler.connection_made(transport)
            handler.data_received(self._received)
            return
        token = heads.proxy_token(head)
        bearer = portal_token.verify(self._secret, token)
        if head.method == "CONNECT":
            where, opening = heads.authority(head.target), b""
        else:
            where, opening = heads.split_absolute(head)
        self._leave = self._epochs.admit(bearer)
        self._leave.hold(transport.abort)
        self._received = rest
        transport.pause_reading()  # until there is somewhere for the bytes to go
        self._task = asyncio.create_task(self._connect(transport, where, opening, self._leave))

    async def _connect(self, transport: asyncio.Transport, where: heads.Authority, opening: bytes, leave: Pass) -> None:
        try:
            dialled = await self._dialler.dial(where)
        except BadPortalRequest as refused:
            _log.info("not_connected", session=leave.bearer.session_id, host=where.host, reason=refused.reason)
            self._refuse(refused)
            return
        if transport.is_closing():
            dialled.transport.abort()
            return
        if not opening:
            transport.write(heads.established())
        if opening or self._received:
            dialled.transport.write(opening + self._received)
        self._task = None
        leave.hold(dialled.transport.abort)
        join(transport, dialled.transport, dialled.held, limits.SPLICE_HIGH_WATER, leave.end)
        transport.resume_reading()

    def _refuse(self, refused: BadPortalRequest) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(heads.refusal(refused.status, refused.reason))
            self._transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
