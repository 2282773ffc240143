"""A link passes everything on, until it is told otherwise. Bug class: a cut that cuts nothing."""

import asyncio
import contextlib
import time
from pathlib import Path

from valet_local.chaos.links import Link, to_port, to_socket


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


class _Ends:
    """An echo server behind a link."""

    async def __aenter__(self) -> "_Ends":
        self._server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.link = Link(to_port(lambda: port))
        self._port = await self.link.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link.close()
        self._server.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)


async def _says(ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], word: bytes) -> bytes:
    reader, writer = ends
    writer.write(word)
    return await asyncio.wait_for(reader.readexactly(len(word)), 5)


async def test_what_one_side_says_the_other_hears() -> None:
    async with _Ends() as ends:
        assert await _says(await ends.connect(), b"good morning") == b"good morning"


async def test_a_cut_ends_every_connection_and_lets_nobody_through_until_it_is_over() -> None:
    async with _Ends() as ends:
        before = await ends.connect()
        assert await _says(before, b"here") == b"here"
        cutting = asyncio.create_task(ends.link.cut(0.3))
        with contextlib.suppress(ConnectionError):  # reset, or ended: both are a cut
            assert await asyncio.wait_for(before[0].read(10), 5) == b""
        during = await ends.connect()
        assert await asyncio.wait_for(during[0].read(10), 5) == b""
        assert await cutting == 1
        assert await _says(await ends.connect(), b"back") == b"back"


async def test_a_freeze_holds_every_byte_and_then_passes_it_on() -> None:
    async with _Ends() as ends:
        before = await ends.connect()
        assert await _says(before, b"here") == b"here"
        began = time.monotonic()
        freezing = asyncio.create_task(ends.link.freeze(0.4))
        await asyncio.sleep(0)
        assert await _says(before, b"late") == b"late"
        assert time.monotonic() - began >= 0.4
        await freezing


async def test_a_server_that_is_away_is_the_end_of_the_connection(tmp_path: Path) -> None:
    link = Link(to_socket(tmp_path / "nobody"))
    port = await link.listen()
    reader, _ = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(10), 5) == b""
    link.close()
