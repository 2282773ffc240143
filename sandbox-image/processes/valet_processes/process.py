"""One process: its record, its output, its input, its end. An edge; nothing here decides whether it may exist."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.errors import Conflict, Unavailable
from valet_protocol.events.machine import ProcessInfo
from valet_service import logs

from valet_processes import limits, process_table, spawn
from valet_processes.answers import Asked
from valet_processes.errors import Closed
from valet_processes.feed import Feed
from valet_processes.output import Output
from valet_processes.pump import Pump, Reader
from valet_processes.registry import Kept
from valet_processes.requests import Resize, Size
from valet_processes.spawn import Started

_log = logs.get(__name__)

_KEYBOARD = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
"""Signals a terminal sends to the program in front."""
_END_OF_INPUT = b"\x04"


class Process:
    """Running or ended. `ended(process)` is called when it is the one and no longer the other."""

    def __init__(
        self,
        info: ProcessInfo,
        output: Output,
        started: Started | None,
        *,
        ended: Callable[["Process"], None],
        asked: Asked | None = None,
    ) -> None:
        """Without `started` it is the record of one that has ended. `asked` started it, where that had a key."""
        self.info = info
        self.asked = asked
        self.output = output
        self.exited = asyncio.Event()
        self._ended = ended
        self._exited_ms: int | None = None
        self._leader_gone = asyncio.Event()
        self._started = started
        self._pump: Pump | None = None
        self._feed: Feed | None = None
        self._life: asyncio.Task[None] | None = None
        self._users = 0
        self._forgotten = False
        if started:
            self._pump = Pump(started.reads, output)
            self._feed = Feed(started.write, end_of_input=_END_OF_INPUT if info.pty else None)
            self._life = asyncio.create_task(self._live(started, self._pump, self._feed))

    @classmethod
    def restored(cls, kept: Kept, output: Output) -> "Process":
        """The record of a process that ended in an earlier life of the service."""
        process = cls(kept.info, output, None, ended=lambda _: None, asked=kept.asked)
        process._exited_ms = kept.exited_ms
        process.exited.set()
        return process

    def snapshot(self) -> ProcessInfo:
        """What it is now."""
        return msgspec.structs.replace(self.info, output_bytes=self.output.end)

    def kept(self) -> Kept:
        """What deciding about its record takes."""
        return Kept(
            info=self.snapshot(),
            exited_ms=self._exited_ms,
            output_cost=self.output.ring.cost,
            asked=self.asked,
        )

    # -- output

    def join(self, reader: Reader) -> None:
        """Tell it of output; wait for it, within its patience."""
        if self._pump:
            self._pump.join(reader)

    def leave(self, reader: Reader) -> None:
        """It is gone."""
        if self._pump:
            self._pump.leave(reader)

    def read_on(self, reader: Reader, size: int) -> None:
        """It took so many bytes."""
        reader.patience.read(size)
        if self._pump:
            self._pump.look()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Somebody reads its output, and may finish that even when its record goes meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_if_unused()

    def forget(self) -> None:
        """Its record goes, and its output with its last reader."""
        self._forgotten = True
        self.output.remove()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._forgotten and not self._users:
            self.output.close()

    # -- input

    def write(self, data: bytes) -> None:
        """Write to it. Raises `Conflict`, `TooMany`."""
        with self._taking_input() as feed:
            feed.write(data)

    async def write_when_read(self, data: bytes) -> None:
        """Write to it once it has read what was before. Raises `Conflict`, `TooMany`."""
        with self._taking_input() as feed:
            await feed.write_when_read(data)

    def close_input(self) -> None:
        """Nothing more will be written; twice is once. Raises `Conflict`, `TooMany`."""
        with self._taking_input() as feed:
            feed.finish()

    # -- control

    def resize(self, size: Size | Resize) -> bool:
        """Give its terminal a size; whether that is another one. Raises `Conflict`."""
        started = self._running()
        if started.terminal is None:
            raise Conflict("no_terminal", f"{self.info.id} was started without a terminal; give pty when creating one")
        if (self.info.rows, self.info.cols) == (size.rows, size.cols):
            return False
        spawn.set_size(started.terminal, size)
        self.info = msgspec.structs.replace(self.info, rows=size.rows, cols=size.cols)
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """Send it to the whole group; on a terminal, what its keyboard can send goes to the program in front, and all
        else to every group of its session. Raises `Conflict`."""
        started = self._running()
        if started.terminal is None:
            process_table.send_group(self.info.pid, number)
        elif number in _KEYBOARD:
            process_table.send_group(_in_front(started.write) or self.info.pid, number)
        else:
            self._signal_all([number])

    async def end(self) -> None:
        """SIGTERM, a while, SIGKILL, to all of it; harmless for one that has ended. Raises `Unavailable`."""
        if self.exited.is_set():
            return
        self.ask_to_end()
        if not await _within(limits.STOP_GRACE, self.exited):
            self._signal_all([signal.SIGKILL])
            if not await _within(limits.KILL_GRACE, self.exited):
                raise Unavailable(
                    "still_running", f"{self.info.id} was killed and the kernel has not ended it yet; try again"
                )

    def ask_to_end(self) -> None:
        """SIGTERM to all of it, woken if it was stopped; on a terminal also what closing its window sends."""
        hang_up = [signal.SIGHUP] if self.info.pty else []
        self._signal_all([*hang_up, signal.SIGTERM, signal.SIGCONT])

    def leader_ended(self) -> bool:
        """Whether the kernel says that its program has ended; if so its end begins. Nothing is reaped."""
        if self._started is None or self._leader_gone.is_set():
            return True
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.info.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
        self._leader_gone.set()
        return True

    # -- its end

    async def _live(self, started: Started, pump: Pump, feed: Feed) -> None:
        await self._leader_gone.wait()
        # not reaped yet: its number, and so its group's, cannot become somebody else's
        if started.terminal is not None:
            os.close(started.terminal)
        feed.close()
        await _drained(pump, limits.LEFTOVER_GRACE)
        await self._end_leftovers()
        await _drained(pump, limits.LAST_OUTPUT)
        pump.close()
        code, number = _reap(started)
        now_ms = time.time_ns() // 1_000_000
        self.info = msgspec.structs.replace(
            self.snapshot(), status="exited", exit_code=code, signal=number, exited_at=rfc3339(now_ms)
        )
        self._exited_ms = now_ms
        self._started = self._feed = None
        self.exited.set()
        self._ended(self)
        pump.wake_all()

    async def _end_leftovers(self) -> None:
        """A process is its group: what its program left behind there is ended too."""
        left = self._alive()
        if not left:
            return
        _log.info("leftovers_ended", process=self.info.id, count=len(left))
        self.ask_to_end()
        if not await self._gone_within(limits.LEFTOVER_TERM):
            self._signal_all([signal.SIGKILL])
            await self._gone_within(limits.KILL_GRACE)

    async def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._alive():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(limits.LOOK_EVERY)
        return True

    def _alive(self) -> set[int]:
        return process_table.members(process_table.rows(), [self.info.pid])

    def _signal_all(self, numbers: Sequence[signal.Signals]) -> None:
        if self._started is None:
            return
        table = process_table.rows()
        for number in numbers:
            process_table.send_group(self.info.pid, number)
        group = {row.pid for row in table if row.group == self.info.pid}
        process_table.send(process_table.members(table, [self.info.pid]) - group, numbers)

    def _running(self) -> Started:
        if self._started is None or self._leader_gone.is_set():
            raise Conflict("process_exited", f"{self.info.id} has ended")
        return self._started

    @contextlib.contextmanager
    def _taking_input(self) -> Iterator[Feed]:
        self._running()
        assert self._feed
        try:
            yield self._feed
        except Closed as error:
            raise Conflict("input_closed", f"{self.info.id} takes no more input") from error


def _in_front(terminal: int) -> int | None:
    with contextlib.suppress(OSError):
        group = os.tcgetpgrp(terminal)
        return group if group > 1 else None
    return None


def _reap(started: Started) -> tuple[int | None, str | None]:
    status = started.program.wait()
    if status >= 0:
        return status, None
    try:
        return None, signal.Signals(-status).name
    except ValueError:
        return None, f"SIG{-status}"


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def _drained(pump: Pump, grace: float) -> None:
    """Until all output is read; at most `grace`, and where a client holds it up as long again as one may."""
    if not await _within(grace, pump.ended) and pump.held:
        await _within(limits.PATIENCE, pump.ended)
