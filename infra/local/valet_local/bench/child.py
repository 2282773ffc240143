"""Measuring processes: commands in and reports out as lines of JSON. They end when their input does.

A load generator in the process that measures would measure itself.
"""

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
import uvloop

from valet_local.bench import limits
from valet_local.bench.errors import BenchFailed

T = TypeVar("T")
C = TypeVar("C")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """An order to write events at a steady rate."""

    rate: float
    """Events a second."""
    seconds: float


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    sent: int
    began_ns: int
    """Monotonic."""
    ended_ns: int


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A child's first line."""

    port: int = 0
    """Where it listens, if it does."""


class Child:
    """A measuring process, from outside. A context manager."""

    def __init__(self, module: str, setup: msgspec.Struct) -> None:
        self._name = module.rpartition(".")[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._rest = b""
        try:
            self.say(setup)
            self.started = self.hear(Started, limits.CHILD_START)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, command: msgspec.Struct, report: type[T], within: float = limits.STEP) -> T:
        """Give it a command and wait for its report. Raises `BenchFailed`."""
        self.say(command)
        return self.hear(report, within)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(limits.CHILD_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()

    def say(self, command: msgspec.Struct) -> None:
        """Give it a command. Raises `BenchFailed`."""
        assert self._process.stdin
        try:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise BenchFailed(f"the process {self._name} has ended: {error}") from error

    def hear(self, report: type[T], within: float = limits.STEP) -> T:
        """Wait for a report. Raises `BenchFailed`."""
        assert self._process.stdout
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise BenchFailed(f"the process {self._name} did not report within {within:g} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise BenchFailed(f"the process {self._name} ended with status {self._process.wait()}")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line, type=report)


class Commands:
    """The commands of the parent, inside a child."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self, kind: type[C]) -> C | None:
        """The next command; None when there is none any more."""
        line = await self._reader.readline()
        return msgspec.json.decode(line, type=kind) if line else None


def report(struct: msgspec.Struct) -> None:
    """Tell the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(struct) + b"\n")
    sys.stdout.buffer.flush()


def serve(main: Callable[[Commands], Awaitable[None]]) -> None:
    """Be a child: `main` reads its commands and returns when there are none any more."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        working = asyncio.ensure_future(main(Commands(reader)))
        await working

    uvloop.run(run())


async def paced(order: Pace, write: Callable[[int], Awaitable[None]]) -> Paced:
    """Call `write(n)` with how many events are due, at a steady rate. Never bursts to catch up by more than is due."""
    total = int(order.rate * order.seconds)
    began = time.monotonic_ns()
    sent = 0
    while sent < total:
        due = min(total, int((time.monotonic_ns() - began) / 1e9 * order.rate) + 1)
        if due > sent:
            await write(due - sent)
            sent = due
        wait = began / 1e9 + sent / order.rate - time.monotonic()
        await asyncio.sleep(max(0.0, wait))
    return Paced(sent=sent, began_ns=began, ended_ns=time.monotonic_ns())
