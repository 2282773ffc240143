"""The last of a process's output, by byte offset. Pure.

Offsets count every byte the process ever wrote, both streams together. What is dropped is dropped from the front,
whole pieces at a time; `start` says where what is left begins.
"""

from bisect import bisect_right

import msgspec

from valet_processes import limits
from valet_processes.text_units import position_after, units


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of output of one stream."""

    offset: int
    """Of its first byte."""
    stream: int
    """1 standard output (or a terminal), 2 standard error."""
    data: bytes

    @property
    def end(self) -> int:
        """Offset of the byte after it."""
        return self.offset + len(self.data)


class Ring:
    """At most `capacity` of memory, `RING_CHUNK_COST` of it for each stored piece."""

    def __init__(self, capacity: int = limits.RING_BYTES, *, end: int = 0, text: bool = False) -> None:
        """`text`: whether UTF-16 units are counted."""
        assert capacity >= limits.RING_CHUNK_BYTES + limits.RING_CHUNK_COST  # one piece always fits
        self._capacity = capacity
        self._starts: list[int] = []
        self._streams: list[int] = []
        self._chunks: list[bytearray] = []
        self._units_before: list[int] = []
        self._units = 0
        self._text = text
        self._cost = 0
        self.end = end
        """Offset of the next byte: how much was written in all."""

    @property
    def start(self) -> int:
        """Offset of the first byte that is still here."""
        return self._starts[0] if self._starts else self.end

    @property
    def cost(self) -> int:
        """Bytes of memory it takes."""
        return self._cost

    def append(self, stream: int, data: bytes) -> None:
        """Add output; what is oldest makes room."""
        view = memoryview(data)
        while view:
            if not self._chunks or self._streams[-1] != stream or len(self._chunks[-1]) >= limits.RING_CHUNK_BYTES:
                self._starts.append(self.end)
                self._streams.append(stream)
                self._units_before.append(self._units)
                self._chunks.append(bytearray())
                self._cost += limits.RING_CHUNK_COST
            tail = self._chunks[-1]
            part = view[: limits.RING_CHUNK_BYTES - len(tail)]
            tail += part
            if self._text:
                self._units += units(bytes(part))
            self._cost += len(part)
            self.end += len(part)
            view = view[len(part) :]
        self._drop(self._oldest_to_drop(self._cost - self._capacity))

    def start_after(self, size: int) -> int:
        """Where it would begin, at the latest, after `size` more bytes: what is before may be overwritten."""
        chunks = size // limits.RING_CHUNK_BYTES + 2
        count = self._oldest_to_drop(self._cost + size + chunks * limits.RING_CHUNK_COST - self._capacity)
        return self._starts[count] if count < len(self._starts) else self.end

    def read(self, offset: int, limit: int) -> Piece | None:
        """At most `limit` bytes of one stream from `offset`, or from `start` where that is later; none at the end."""
        offset = max(offset, self.start)
        if offset >= self.end:
            return None
        index = bisect_right(self._starts, offset) - 1
        skip = offset - self._starts[index]
        data = bytes(memoryview(self._chunks[index])[skip : skip + limit])
        return Piece(offset=offset, stream=self._streams[index], data=data)

    def units_at(self, offset: int) -> int:
        """UTF-16 units of all the output before `offset`, which is not before `start`."""
        if offset >= self.end:
            return self._units
        index = bisect_right(self._starts, offset) - 1
        return self._units_before[index] + units(self._chunks[index][: offset - self._starts[index]])

    def offset_of(self, wanted: int) -> int:
        """Offset of the character that comes after `wanted` UTF-16 units; `start` for one that is gone."""
        if wanted >= self._units or not self._chunks:
            return self.end
        index = bisect_right(self._units_before, wanted) - 1
        if index < 0:
            return self.start
        return self._starts[index] + position_after(self._chunks[index], wanted - self._units_before[index])

    def clear(self) -> None:
        """Drop everything; offsets stay what they are."""
        self._drop(len(self._chunks))

    def _oldest_to_drop(self, excess: int) -> int:
        count = 0
        while excess > 0 and count < len(self._chunks):
            excess -= len(self._chunks[count]) + limits.RING_CHUNK_COST
            count += 1
        return count

    def _drop(self, count: int) -> None:
        self._cost -= sum(map(len, self._chunks[:count])) + count * limits.RING_CHUNK_COST
        del self._starts[:count], self._streams[:count], self._chunks[:count], self._units_before[:count]
