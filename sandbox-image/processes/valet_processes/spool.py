"""A process's whole output on disk: one file of bytes, and one that says which stream each run of them came from."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

from valet_service import logs

from valet_processes import limits
from valet_processes.ring import Piece

_log = logs.get(__name__)

_RUN = struct.Struct("<QB")
"""Offset of a run's first byte, its stream."""


class Spool:
    """Appends until it is full or the disk is; from then on `end` stays. Reads at any offset before `end`."""

    def __init__(self, path: Path, *, room: Callable[[], int], writable: bool = True) -> None:
        """`path` without its suffixes. `room` says how many bytes may still be written by this and all others."""
        self._paths = (path.with_suffix(".out"), path.with_suffix(".runs"))
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if writable else 0)
        self._data = os.open(self._paths[0], flags, 0o600)
        try:
            self._runs = os.open(self._paths[1], flags, 0o600)
        except OSError:
            os.close(self._data)
            raise
        self.end = os.fstat(self._data).st_size
        self._run_count = os.fstat(self._runs).st_size // _RUN.size
        self._stream = 0
        self._room = room
        self.full = not writable

    def append(self, stream: int, data: bytes) -> None:
        """Write it all or, for good, nothing more."""
        if self.full:
            return
        if self.end + len(data) > limits.SPOOL_BYTES or len(data) > self._room():
            self._fill("limit reached")
            return
        try:
            if stream != self._stream:
                _write(self._runs, _RUN.pack(self.end, stream), self._run_count * _RUN.size)
                self._run_count += 1
                self._stream = stream
            _write(self._data, data, self.end)
        except OSError as error:
            self._fill(str(error))
            return
        self.end += len(data)

    def read(self, offset: int, limit: int) -> Piece | None:
        """At most `limit` bytes of one stream from `offset`; none from `end` on."""
        if not 0 <= offset < self.end or not self._run_count:
            return None
        low, high = 0, self._run_count
        while high - low > 1:
            middle = (low + high) // 2
            if self._run(middle)[0] <= offset:
                low = middle
            else:
                high = middle
        stream = self._run(low)[1]
        run_end = self._run(high)[0] if high < self._run_count else self.end
        data = os.pread(self._data, min(limit, min(run_end, self.end) - offset), offset)
        return Piece(offset=offset, stream=stream, data=data) if data else None

    def remove(self) -> None:
        """Remove the files; who reads them reads on until `close`."""
        self.full = True
        for path in self._paths:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._data, self._runs):
            os.close(descriptor)

    def _run(self, index: int) -> tuple[int, int]:
        return _RUN.unpack(os.pread(self._runs, _RUN.size, index * _RUN.size))

    def _fill(self, reason: str) -> None:
        self.full = True
        _log.warning("output_no_longer_kept", file=self._paths[0].name, kept_bytes=self.end, reason=reason)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
