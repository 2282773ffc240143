"""How far something has come in the log, and waiting until it has come far enough."""

import asyncio
import heapq
import itertools


class Progress:
    """A sequence that only grows."""

    def __init__(self, start: int = 0) -> None:
        self.seq = start
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def advance(self, seq: int) -> None:
        """It has come to `seq`; whoever waits for that is woken."""
        self.seq = max(self.seq, seq)
        while self._waiting and self._waiting[0][0] <= self.seq:
            _, _, reached = heapq.heappop(self._waiting)
            if not reached.done():
                reached.set_result(None)

    async def reach(self, seq: int, timeout: float) -> None:
        """Wait until it has come to `seq`. Raises `TimeoutError`."""
        if seq <= self.seq:
            return
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (seq, next(self._order), reached))
        await asyncio.wait_for(reached, timeout)
