"""Connections that can be cut or frozen: what one side sends goes through here to the other."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from valet_local.chaos import limits

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_CHUNK = 1 << 16


class Link:
    """One way from clients to a server. `dial` connects to the server; it may raise `OSError`."""

    def __init__(self, dial: Callable[[], Awaitable[Pipe]]) -> None:
        self._dial = dial
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._server: asyncio.Server | None = None

    async def listen(self, where: "Path | None" = None) -> int:
        """Take connections on a free loopback port, which is returned, or on a unix socket."""
        if where is not None:
            self._server = await asyncio.start_unix_server(self._serve, str(where))
            return 0
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        return self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.close()
        self._abort()

    async def cut(self, seconds: float) -> int:
        """Cut every connection and let nobody through for a while. How many there were."""
        self._refusing = True
        count = len(self._writers) // 2
        self._abort()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._refusing = False
        return count

    async def freeze(self, seconds: float) -> int:
        """Let no byte through in either direction for a while, as a network that is gone does. Then it goes on."""
        self._flowing.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._flowing.set()
        return len(self._writers) // 2

    def _abort(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if self._refusing:
                return
            await self._flowing.wait()
            far, other = await self._dial()
            self._writers.add(other)
            pumps = [asyncio.create_task(self._pump(reader, other)), asyncio.create_task(self._pump(far, writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server is away: its client sees the connection end, as it would without us
        finally:
            for end in (writer, other):
                if end is not None:
                    self._writers.discard(end)
                    end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


def to_port(port: Callable[[], int]) -> Callable[[], Awaitable[Pipe]]:
    """A way to a loopback port that may not be known yet: `port` raises `OSError` until it is."""

    async def dial() -> Pipe:
        return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port()), limits.STREAM_CONNECT)

    return dial


def to_socket(path: Path) -> Callable[[], Awaitable[Pipe]]:
    """A way to a unix socket."""

    async def dial() -> Pipe:
        return await asyncio.wait_for(asyncio.open_unix_connection(str(path)), limits.STREAM_CONNECT)

    return dial
