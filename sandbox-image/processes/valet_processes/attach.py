"""One WebSocket on one process: replay from an offset, then live, from the same place, so nothing is lost between."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import WSMsgType, web
from valet_service import tasks

from valet_processes import limits
from valet_processes.holding import Patience
from valet_processes.process import Process
from valet_processes.ring import Piece

TOO_SLOW = 1013
"""`Try again later`: the connection was too slow; everything up to its offset was sent."""


class Attached:
    """Reads a process's output for one client. What the frames look like is said by whoever makes it."""

    def __init__(
        self,
        process: Process,
        socket: web.WebSocketResponse,
        *,
        cursor: int,
        patience: float,
        send: Callable[[Piece], Awaitable[None]],
        received: Callable[[str | bytes], Awaitable[None]],
    ) -> None:
        """`send` sends output, `received` is given what the client sent."""
        self.cursor = cursor
        self.patience = Patience(patience)
        self._process = process
        self._socket = socket
        self._send = send
        self._received = received
        self._news = asyncio.Event()
        self._sending: asyncio.Task[bool] | None = None
        self._was_cut = False

    def wake(self) -> None:
        """There may be more to read."""
        self._news.set()

    def cut(self) -> None:
        """It was too slow: it is told so once it reads again, and may come back with its offset."""
        self._was_cut = True
        if self._sending:
            self._sending.cancel()

    async def run(
        self,
        *,
        greet: Callable[[], Awaitable[None]],
        replayed: Callable[[], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        """Until the process has ended and all is sent, or the client is gone or too slow.

        `greet` is called first, when nothing from the cursor on is overwritten any more; `replayed` once, when all
        there was at the start has been sent; `ended` when there is nothing more.
        """
        with self._process.in_use():
            receiving = asyncio.create_task(self._receive())
            self._process.join(self)
            self._sending = asyncio.create_task(self._send_all(greet, replayed, ended))
            try:
                await asyncio.wait([receiving, self._sending], return_when=asyncio.FIRST_COMPLETED)
                self._process.leave(self)
                if self._was_cut or not self._sending.done():
                    await tasks.end(self._sending)
                if self._was_cut or self._finished() is False:
                    await self._close(TOO_SLOW, b"too slow; connect again with your offset")
                elif self._finished():
                    await self._close(1000, b"")
            finally:
                self._process.leave(self)
                await tasks.end(receiving, self._sending)
                for task in (receiving, self._sending):
                    error = None if task.cancelled() else task.exception()
                    if error and not isinstance(error, ConnectionError):
                        raise error

    def _finished(self) -> bool | None:
        """Whether all was sent, or output was dropped before; none where it did not come so far."""
        sending = self._sending
        if sending is None or not sending.done() or sending.cancelled() or sending.exception():
            return None
        return sending.result()

    async def _send_all(
        self,
        greet: Callable[[], Awaitable[None]],
        replayed: Callable[[], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
    ) -> bool:
        """Whether it came to the end; else output was dropped that it had not got."""
        there_was = self._process.output.end
        await greet()
        caught_up = False
        while True:
            self._news.clear()  # what happens from here on is noticed
            over = self._process.exited.is_set()
            if not caught_up and self.cursor >= there_was:
                caught_up = True
                await replayed()
            piece = self._process.output.read(self.cursor, limits.FRAME_BYTES)
            if piece is None:
                if self.cursor < self._process.output.end:
                    return False
                if over:
                    await ended()
                    return True
                await self._news.wait()
                continue
            if piece.offset != self.cursor:
                return False
            await self._send(piece)
            self.cursor = piece.end
            self._process.read_on(self, len(piece.data))
            await asyncio.sleep(0)  # a frame that the kernel took at once lets nobody else in

    async def _receive(self) -> None:
        async for message in self._socket:
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                await self._received(message.data)

    async def _close(self, code: int, reason: bytes) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(limits.CLOSE_TIMEOUT):
                await self._socket.close(code=code, message=reason, drain=False)
