"""A process of a sandbox joined with standard input and output, over cut connections."""

import asyncio
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from valet_protocol.errors import Conflict, Unavailable
from valet_protocol.events.machine import ProcessInfo
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from valet_local.cli import limits
from valet_local.cli.errors import OutputGone, ProcessGone
from valet_local.cli.sandbox_access import Processes, TerminalSize
from valet_local.client import backoff
from valet_local.client import limits as client_limits
from valet_local.client.errors import NotReachable


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """What follows."""

    offset: int
    dropped: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    """It has ended and there is no more output."""

    exit_code: int | None = None
    signal: str | None = None

    @property
    def status(self) -> int:
        """As a shell would say it."""
        if self.exit_code is not None:
            return self.exit_code
        number = getattr(signal, self.signal or "", None)
        return 128 + number if isinstance(number, signal.Signals) else 1


class RefusedFrame(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Something we sent was not done."""

    code: str
    detail: str


class Attached:
    """One process, shown and written to. `tell` is given news of the connection."""

    def __init__(
        self,
        processes: Processes,
        process: ProcessInfo,
        *,
        tell: Callable[[str], None],
        write: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._processes = processes
        self._process = process
        self._tell = tell
        self._write = write or _write
        self._offset = 0
        self._open: asyncio.Future[ClientConnection] = asyncio.get_running_loop().create_future()
        self.takes_no_more = asyncio.Event()
        """Set once it has closed its input: what is written to it goes nowhere."""

    async def follow(self) -> Exited:
        """Show its output from the beginning until it has ended.

        Raises `ProcessGone`, `OutputGone` where it cannot be shown any more, `NotReachable`, `Refused`.
        """
        alive_at = time.monotonic()
        tries = backoff.waits(random.random())
        while True:
            began = time.monotonic()
            try:
                async with self._processes.connect(self._process.id, self._offset) as connection:
                    async for exited in self._frames(connection):
                        alive_at, tries = time.monotonic(), backoff.waits(random.random())
                        if exited is not None:
                            return exited
                reason = "the connection was closed"
            except InvalidStatus as error:
                if error.response.status_code == 404:
                    raise ProcessGone("the sandbox does not know of it any more") from error
                reason = f"HTTP {error.response.status_code}"
            except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            finally:
                if self._open.done():
                    self._open = asyncio.get_running_loop().create_future()
            if time.monotonic() - began > client_limits.RETRY_LONGEST:  # it was a connection, if one without news
                alive_at, tries = time.monotonic(), backoff.waits(random.random())
            silent = time.monotonic() - alive_at
            if silent > limits.ATTACH_PATIENCE:
                raise NotReachable("the sandbox", silent, reason)
            await asyncio.sleep(next(tries))
            await self._renew(reason)

    async def send(self, frame: bytes | str) -> None:
        """Input as bytes, anything else as text; waits for a connection where there is none."""
        while True:
            connection = await asyncio.shield(self._open)
            try:
                return await connection.send(frame)
            except ConnectionClosed:
                await asyncio.sleep(limits.SEND_RETRY)  # until `follow` has noticed, too

    async def resize(self, size: TerminalSize) -> None:
        """Its terminal has another size."""
        await self.send(msgspec.json.encode({"type": "resize", "rows": size.rows, "cols": size.cols}).decode())

    async def signal(self, name: str) -> None:
        """To all of its group."""
        await self.send(msgspec.json.encode({"type": "signal", "signal": name}).decode())

    async def close_input(self) -> None:
        """Nothing more will be written to it."""
        await self.send('{"type":"close_stdin"}')

    async def _renew(self, reason: str) -> None:
        try:
            await self._processes.resume()
        except (Conflict, Unavailable, NotReachable) as error:
            reason = f"{reason}; {error}"  # it may be there again in a moment
        self._tell(f"Connecting to the sandbox again ({reason})")

    async def _frames(self, connection: ClientConnection) -> AsyncIterator[Exited | None]:
        """None for every piece of output; the end last."""
        async for frame in connection:
            if isinstance(frame, bytes):
                if self._process.pty:
                    stream, data = 1, frame
                else:
                    stream, data = frame[0], frame[1:]
                try:
                    self._write(stream, data)
                except OSError as error:  # ours: the connection has nothing to do with it
                    connection.transport.abort()  # an orderly end would have to take all that is on its way
                    raise OutputGone(error) from error
                self._offset += len(data)
                yield None
                continue
            match _decode(frame):
                case Hello(offset=offset, dropped=dropped):
                    if dropped:
                        self._tell(f"{dropped} bytes of output are lost: they came faster than they could be taken")
                    self._offset = offset
                    if not self._open.done():
                        self._open.set_result(connection)
                case Exited() as exited:
                    yield exited
                    return
                case RefusedFrame(code="input_closed"):
                    self.takes_no_more.set()
                case RefusedFrame(detail=detail):
                    self._tell(detail)
                case None:
                    pass  # of another version


def _decode(frame: str) -> Hello | Exited | RefusedFrame | None:
    try:
        return msgspec.json.decode(frame, type=Hello | Exited | RefusedFrame)
    except msgspec.ValidationError:
        return None


def _write(stream: int, data: bytes) -> None:
    file = sys.stderr if stream == 2 else sys.stdout
    file.buffer.write(data)
    file.buffer.flush()
