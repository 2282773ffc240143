"""Writers for (e): into the log of a session, or — its floor — straight to the sockets.

python -m valet_local.bench.crowd       setup: `Setup`; then `Pace` orders
"""

import asyncio
import resource
from typing import Literal, cast

import msgspec
from nats.aio.client import Client
from valet_service import broker
from valet_service.outbox import Outbox

from valet_local.bench import wire
from valet_local.bench.child import Commands, Pace, Started, paced, report, serve
from valet_local.bench.stamped import Deltas, frame


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """`log`: writes deltas of a session into the log. `sockets`: is the floor's server."""

    role: Literal["log", "sockets"]
    session_id: str
    nats_url: str = ""
    creds: str = ""


async def _log(setup: Setup, commands: Commands) -> None:
    deltas = Deltas(setup.session_id)

    async def connect() -> Client:
        return await broker.connect(setup.nats_url, name="bench-crowd", creds=setup.creds, reconnect=False)

    async with Outbox(connect) as outbox:

        async def write(count: int) -> None:
            for _ in range(count):
                outbox.put(deltas.next())
            await outbox.room()

        await outbox.put(deltas.next())  # a first one, so that the connection is there
        report(Started())
        while order := await commands.next(Pace):
            done = await paced(order, write)
            await outbox.flush()
            report(done)


class _Socket(asyncio.Protocol):
    """One client of the floor: greeted with what a platform says, then written to."""

    def __init__(self, all_of_them: set[asyncio.Transport]) -> None:
        self._all = all_of_them
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._all.add(self._transport)
        self._transport.write(b"HTTP/1.1 200 OK\r\n\r\n" + wire.SYNCED + b"\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._all.discard(self._transport)


async def _sockets(setup: Setup, commands: Commands) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients: set[asyncio.Transport] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Socket(clients), "127.0.0.1", 0, backlog=256)
    deltas = Deltas(setup.session_id)
    waiting: list[bytes] = []
    news = asyncio.Event()
    number = 0

    async def write(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            waiting.append(frame(number, deltas.next()))
        news.set()

    async def flush() -> None:
        while True:
            await news.wait()
            news.clear()
            joined = b"".join(waiting)
            waiting.clear()
            for client in tuple(clients):
                client.write(joined)
            await asyncio.sleep(0)

    flushing = asyncio.create_task(flush())
    report(Started(port=server.sockets[0].getsockname()[1]))
    while order := await commands.next(Pace):
        report(await paced(order, write))
    flushing.cancel()


async def _main(commands: Commands) -> None:
    setup = await commands.next(Setup)
    if setup is not None:
        await (_log if setup.role == "log" else _sockets)(setup, commands)


if __name__ == "__main__":
    serve(_main)
