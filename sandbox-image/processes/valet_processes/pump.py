"""From a process's descriptors into its output, held up by the clients that read it as far as their patience goes."""

import asyncio
import contextlib
import os
from typing import Protocol

from valet_processes import limits
from valet_processes.holding import Patience
from valet_processes.output import Output


class Reader(Protocol):
    """A connected client, as the pump sees it."""

    cursor: int
    """Offset up to which it has taken output."""
    patience: Patience

    def wake(self) -> None:
        """There is more to read, or it was the last."""

    def cut(self) -> None:
        """It was too slow."""


class _FirstClient:
    """Stands for the client that whoever starts a process is about to connect."""

    def __init__(self) -> None:
        self.cursor = 0
        self.patience = Patience(limits.FIRST_CLIENT_WAIT)

    def wake(self) -> None:
        pass

    def cut(self) -> None:
        pass


class Pump:
    """Reads until every descriptor is at its end."""

    def __init__(self, reads: dict[int, int], output: Output) -> None:
        """`reads`: non-blocking descriptors and their streams; closed here."""
        self._reads = dict(reads)
        self._open = set(reads)
        self._output = output
        self._first = _FirstClient()
        self._readers: set[Reader] = {self._first}
        self._held_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()
        """Set when there is nothing more to come."""
        self._listen()

    @property
    def held(self) -> bool:
        """Whether the process waits for a client."""
        return self._held_since is not None

    def join(self, reader: Reader) -> None:
        """From now on it is told of output, and waited for."""
        self._readers.add(reader)
        self._readers.discard(self._first)
        self.look()

    def leave(self, reader: Reader) -> None:
        """It is gone."""
        self._readers.discard(reader)
        self.look()

    def look(self) -> None:
        """A client has read on: see whether the process still has to wait."""
        if self._held_since is None:
            return
        now = asyncio.get_running_loop().time()
        for reader in self._behind():
            reader.patience.held(now - self._held_since)
            if reader.patience.used_up:
                self._readers.discard(reader)
                reader.cut()
        self._held_since = now
        self._hold_or_go_on()

    def wake_all(self) -> None:
        """Tell every client to look."""
        for reader in self._readers:
            reader.wake()

    def close(self) -> None:
        """Take what is there at this moment, then stop reading."""
        for descriptor in list(self._open):
            with contextlib.suppress(OSError):
                # no more than a pipe holds: a daemon may go on writing for ever
                for _ in range(limits.LAST_READS):
                    self._output.append(self._reads[descriptor], os.read(descriptor, limits.READ_BYTES))
            self._end(descriptor)
        for descriptor in self._reads:
            os.close(descriptor)
        self._reads.clear()
        if self._timer:
            self._timer.cancel()
        self._held_since = None
        self.wake_all()

    def _readable(self, descriptor: int) -> None:
        if self._behind():
            self._held_since = asyncio.get_running_loop().time()
            for each in self._open:
                asyncio.get_running_loop().remove_reader(each)
            self._hold_or_go_on()
            return
        taken = bytearray()
        over = False
        try:
            # a terminal gives at most 4 KB at once
            while not over and len(taken) < limits.READ_BYTES:
                data = os.read(descriptor, limits.READ_BYTES - len(taken))
                taken += data
                over = not data
        except BlockingIOError:
            pass
        except OSError:  # a terminal without programs on it
            over = True
        if taken:
            self._output.append(self._reads[descriptor], bytes(taken))
            self.wake_all()
        if over:
            self._end(descriptor)

    def _behind(self) -> list[Reader]:
        safe = self._output.safe_until()
        return [reader for reader in self._readers if reader.cursor < safe]

    def _hold_or_go_on(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        behind = self._behind()
        if behind:
            wait = min(reader.patience.left for reader in behind)
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self.look)
        else:
            self._held_since = None
            self._listen()

    def _listen(self) -> None:
        for descriptor in self._open:
            asyncio.get_running_loop().add_reader(descriptor, self._readable, descriptor)

    def _end(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._open.discard(descriptor)  # closed with all: a terminal is written to as well
        if not self._open:
            self.ended.set()
