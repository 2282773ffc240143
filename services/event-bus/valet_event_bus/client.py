"""A client's connection: what SSE and WebSocket have in common. It is written to and never waited for."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from valet_service import logs

from valet_event_bus import limits
from valet_event_bus.errors import Gone

_log = logs.get(__name__)


class Client(asyncio.Protocol):
    """Base of both protocols. `closed` is called once when the connection has ended."""

    def __init__(self, user: str, closed: Callable[["Client"], None]) -> None:
        self.user = user
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._drained: list[asyncio.Future[None]] = []
        self._gone = False
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.BUFFER_HIGH)
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_exception(Gone())
        self._drained.clear()
        self._closed(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()

    def opened(self) -> None:
        """The connection can be written to: send the response's head and begin."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Called now and then: show the client, and whatever lies between, that the connection lives."""
        raise NotImplementedError

    def bid_farewell(self) -> None:
        """The service stops: say so if the protocol has a word for it, and close."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send without waiting. A client that has not taken what it was given long ago is cut."""
        transport = self._transport
        if transport is None or self._gone or self._closing:
            return
        if self._paused and transport.get_write_buffer_size() > limits.SLOW_CLIENT_BYTES:
            _log.info("slow_client_cut", user=self.user, unsent=transport.get_write_buffer_size())
            self.abort()
            return
        transport.write(data)

    def write_if_idle(self, data: bytes) -> bool:
        """Send what can wait, or be left out, only to a client that has taken what it got before."""
        if self._paused:
            return False
        self.write(data)
        return True

    def check(self) -> None:
        """Raises `Gone` when the connection has ended, or is about to."""
        if self._gone or self._closing:
            raise Gone

    async def drained(self) -> None:
        """Wait until the client has taken most of what was sent. Raises `Gone`."""
        self.check()
        if self._paused:
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter

    def close(self) -> None:
        """End the connection once what was written has been taken. Nothing more is written."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def part(self) -> None:
        """End the connection, but take for a moment what the client is still sending. Closed with something unread, its
        system would drop our last words unread, too."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(limits.PARTING, self._transport.abort)

    def abort(self) -> None:
        """End the connection now."""
        self._gone = True
        if self._transport is not None:
            self._transport.abort()


def tune(connection: socket.socket) -> None:
    """Socket options of a client's connection: no delay, and the kernel finds out about peers that vanished."""
    connection.setblocking(False)
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
