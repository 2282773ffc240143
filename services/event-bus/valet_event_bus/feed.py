"""What the hub reads in passing and notifications are made of: taken from there, the log is read once only."""

import asyncio
from collections import deque
from collections.abc import Sequence

from valet_service.log_reader import Entry

from valet_event_bus import limits
from valet_event_bus.notify import MATTERS


def matters(subject: str) -> bool:
    """Whether an event can mean a notification, or is needed to know whom to tell."""
    return subject.split(".", 3)[-1] in MATTERS


class Feed:
    """Events on their way to the database. When too many wait they are let go, and it is no longer `complete`."""

    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._read = 0
        self._arrived = asyncio.Event()
        self.complete = True

    def restart(self) -> None:
        """Gather from here on."""
        self._waiting.clear()
        self.complete = True

    def offer(self, entries: Sequence[Entry]) -> None:
        """Take what matters. Never waits."""
        self._read = entries[-1].seq
        if not self.complete:
            return
        found = [entry for entry in entries if matters(entry.subject)]
        if len(self._waiting) + len(found) > limits.NOTIFY_WAITING:
            self._waiting.clear()
            self.complete = False
        else:
            self._waiting.extend(found)
        if found:
            self._arrived.set()

    async def take(self, most: int) -> tuple[list[Entry], int]:
        """The oldest of what waits, and the sequence up to which it is all there is; waits for a while for the first.

        May be empty: after that while, or when it is not complete.
        """
        while self.complete and not self._waiting:
            self._arrived.clear()
            try:
                async with asyncio.timeout(limits.POSITION_EVERY):
                    await self._arrived.wait()
            except TimeoutError:
                break
        entries = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        return entries, entries[-1].seq if self._waiting else self._read
