"""All that can still be read of one process's output: the ring and, where it was asked to be kept, the spool."""

from valet_processes import limits
from valet_processes.ring import Piece, Ring
from valet_processes.spool import Spool


class Output:
    """Appended to by the process, read by offset by anybody."""

    def __init__(self, *, spool: Spool | None = None, end: int = 0, text: bool = False) -> None:
        """`end` is where a process of an earlier life of the service had got to; `text`: it is a terminal's."""
        self.ring = Ring(end=end, text=text)
        self.spool = spool

    @property
    def end(self) -> int:
        """Offset of the next byte."""
        return self.ring.end

    def append(self, stream: int, data: bytes) -> None:
        """Add what was read from the process."""
        if self.spool:
            self.spool.append(stream, data)
        self.ring.append(stream, data)

    def first_from(self, offset: int) -> int:
        """The first offset, from `offset` on, that can be read; what is between the two was dropped."""
        if self.spool and offset < self.spool.end:
            return offset
        return min(max(offset, self.ring.start), self.end)

    def read(self, offset: int, limit: int) -> Piece | None:
        """At most `limit` bytes of one stream from `first_from(offset)`; none at the end."""
        if offset >= self.ring.start:
            return self.ring.read(offset, limit)
        kept = self.spool.read(offset, limit) if self.spool else None
        return kept or self.ring.read(offset, limit)

    def safe_until(self) -> int:
        """A reader that has read up to here loses nothing by the next read from the process."""
        if self.spool and not self.spool.full:
            return 0
        return self.ring.start_after(limits.READ_BYTES)

    def remove(self) -> None:
        """Nobody new will read it."""
        if self.spool:
            self.spool.remove()

    def close(self) -> None:
        """Nobody reads it any more; what is on disk and was not removed stays."""
        self.ring.clear()
        if self.spool:
            self.spool.close()
            self.spool = None
