"""The last of what happened to processes, by a number that only grows. Pure.

Ids begin at a moment's milliseconds times 1024, so they grow over a restart of the service too, and JavaScript can
count so far.
"""

from collections import deque

import msgspec

from valet_processes import limits


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    id: int
    type: str
    """`process.created`, `process.updated`, `process.exited` or `process.deleted`."""
    data: bytes
    """JSON."""


class EventLog:
    """Bounded history."""

    def __init__(self, now_ms: int, *, complete: bool, capacity: int = limits.EVENTS_KEPT) -> None:
        """`complete`: nothing happened before, so whoever asks from 0 can be told everything."""
        self._before = now_ms * 1024
        self.last = self._before
        """Id of the latest event."""
        self._floor = 0 if complete else self.last
        self._kept: deque[Happened] = deque()
        self._capacity = capacity
        self._bytes = 0

    def append(self, type: str, data: bytes) -> None:
        """It happened."""
        self.last += 1
        self._kept.append(Happened(id=self.last, type=type, data=data))
        self._bytes += len(data)
        while len(self._kept) > self._capacity or self._bytes > limits.EVENTS_BYTES:
            oldest = self._kept.popleft()
            self._floor = oldest.id
            self._bytes -= len(oldest.data)

    def since(self, after: int) -> list[Happened] | None:
        """All events after that id; none where some of them are not kept, or that id was never given."""
        earlier_life = 0 < after < self._before
        if earlier_life or not self._floor <= after <= self.last:
            return None
        if after == self.last:
            return []
        return [event for event in self._kept if event.id > after]
