"""Many clients in one process — the thousand of (e), those of a load run: bare sockets that count frames and look at
the stamps in them.

python -m valet_local.bench.watchers    setup: `Setup`; then `Look`s, each answered with what came since the last
"""

import asyncio
import resource
import time
from typing import cast

import msgspec

from valet_local.bench import wire
from valet_local.bench.child import Commands, Started, report, serve
from valet_local.bench.statistics import Spread, weighted_spread


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect and what to say there."""

    host: str
    port: int
    greeting: str
    count: int
    greetings: list[str] = []
    """One for each client, where they do not all say the same."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what came, once that is `expected` frames, or when nothing has come for a moment."""

    expected: int
    patience: float
    """Seconds of silence after which nothing more is expected."""
    seconds: float = 0.0
    """If given, tell after so long, whatever came."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What came."""

    frames: int
    bytes: int
    reads: int
    """Pieces they came in."""
    last_ns: int
    """When the last came, monotonic."""
    connected: int
    delay: Spread | None
    """Milliseconds. Of each piece, its first stamp — the oldest, so the longest delay in it — stands for all."""


class _Count:
    """What all sockets have got since the last look."""

    def __init__(self) -> None:
        self.frames = self.bytes = self.reads = self.last_ns = 0
        self.delays: list[tuple[float, int]] = []


class _Watcher(asyncio.Protocol):
    def __init__(self, owner: "_Watchers") -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._owner.greeting())  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        count = self._owner.count
        now = time.monotonic_ns()
        frames = data.count(b"\nid: ") + data.startswith(b"id: ")
        count.frames += frames
        count.bytes += len(data)
        count.reads += 1
        count.last_ns = now
        at = data.find(b'"text":"@')
        if at >= 0:
            end = data.find(b" ", at)
            if end > 0:
                count.delays.append(((now - int(data[at + 9 : end])) / 1e6, frames or 1))
        if not self._owner.ready and wire.SYNCED in data:
            self._owner.synced += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connected -= 1


class _Watchers:
    def __init__(self, setup: Setup) -> None:
        said = setup.greetings or [setup.greeting] * setup.count
        self._greetings = iter([words.encode() for words in said])
        self.count = _Count()
        self.connected = 0
        self.synced = 0
        self.ready = False

    def greeting(self) -> bytes:
        """What the next client says."""
        return next(self._greetings)

    async def connect(self, setup: Setup) -> None:
        """All of them, some at a time; returns when every one is live."""
        loop = asyncio.get_running_loop()
        for start in range(0, setup.count, 50):
            some = range(start, min(start + 50, setup.count))
            await asyncio.gather(
                *(loop.create_connection(lambda: _Watcher(self), setup.host, setup.port) for _ in some)
            )
            self.connected += len(some)
            while self.synced < self.connected:  # noqa: ASYNC110 - setup, not measured
                await asyncio.sleep(0.01)
        self.ready = True

    async def look(self, order: Look) -> Seen:
        """Wait as told, then tell and begin anew."""
        await asyncio.sleep(order.seconds)
        while not order.seconds and self.count.frames < order.expected:
            before = self.count.frames
            await asyncio.sleep(min(order.patience, 0.1))
            if self.count.frames == before and time.monotonic_ns() - self.count.last_ns > order.patience * 1e9:
                break
        count, self.count = self.count, _Count()
        return Seen(
            frames=count.frames,
            bytes=count.bytes,
            reads=count.reads,
            last_ns=count.last_ns,
            connected=self.connected,
            delay=weighted_spread(count.delays) if count.delays else None,
        )


async def _main(commands: Commands) -> None:
    setup = await commands.next(Setup)
    if setup is None:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    watchers = _Watchers(setup)
    await watchers.connect(setup)
    watchers.count = _Count()
    watchers.count.last_ns = time.monotonic_ns()
    report(Started())
    while order := await commands.next(Look):
        watchers.count.last_ns = max(watchers.count.last_ns, time.monotonic_ns() - int(order.patience * 5e8))
        report(await watchers.look(order))


if __name__ == "__main__":
    serve(_main)
