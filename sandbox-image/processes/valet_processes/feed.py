"""A process's input: what it has not read yet, written as it reads. An edge; its order is that of the calls."""

import asyncio
import contextlib
import os
from collections import deque

from valet_protocol.errors import TooMany

from valet_processes import limits
from valet_processes.errors import Closed


class Feed:
    """Bounded: `INPUT_WAITING_BYTES`."""

    def __init__(self, descriptor: int, *, end_of_input: bytes | None) -> None:
        """`end_of_input`: what a terminal takes for the end; none for a pipe, which is closed instead."""
        self._descriptor: int | None = descriptor
        self._end_of_input = end_of_input
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._closing = False
        self._writing = False
        self._room = asyncio.Event()

    def write(self, data: bytes) -> None:
        """Take it all or nothing. Raises `Closed`, `TooMany`."""
        if self._descriptor is None or self._closing:
            raise Closed
        if self._size + len(data) > limits.INPUT_WAITING_BYTES:
            raise TooMany("input_full", f"The process has not read {self._size} bytes of input yet; try again later")
        if data:
            self._waiting.append(memoryview(data))
            self._size += len(data)
            self._flush()

    async def write_when_read(self, data: bytes) -> None:
        """Like `write`, but waits a while for the process to read. Raises `Closed`, `TooMany`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.INPUT_WAIT):
                while self._size and self._size + len(data) > limits.INPUT_WAITING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        self.write(data)

    def finish(self) -> None:
        """Nothing more comes; twice is once. On a terminal it is only a key press, and more may come."""
        if self._descriptor is None or self._closing:
            return
        if self._end_of_input is not None:
            self.write(self._end_of_input)
            return
        self._closing = True
        self._flush()

    def close(self) -> None:
        """The process is over, or does not read any more."""
        self._stop_writing()
        if self._descriptor is not None and self._end_of_input is None:  # a terminal's is closed with its output
            os.close(self._descriptor)
        self._descriptor = None
        self._waiting.clear()
        self._size = 0
        self._room.set()

    def _flush(self) -> None:
        assert self._descriptor is not None
        while self._waiting:
            head = self._waiting[0]
            try:
                written = os.write(self._descriptor, head)
            except BlockingIOError:
                if not self._writing:
                    asyncio.get_running_loop().add_writer(self._descriptor, self._flush)
                    self._writing = True
                return
            except OSError:  # it closed its standard input
                self.close()
                return
            self._size -= written
            self._room.set()
            if written < len(head):
                self._waiting[0] = head[written:]
            else:
                self._waiting.popleft()
        self._stop_writing()
        if self._closing:
            self.close()

    def _stop_writing(self) -> None:
        if self._writing and self._descriptor is not None:
            asyncio.get_running_loop().remove_writer(self._descriptor)
        self._writing = False
