"""Writing folded events to PostgreSQL, in order, each exactly once, however long PostgreSQL is away."""

import asyncio
from collections import deque
from collections.abc import Sequence

import asyncpg
from valet_service import database, logs

from valet_session_ledger import limits
from valet_session_ledger.progress import Progress
from valet_session_ledger.purger import Purger
from valet_session_ledger.rows import Batch
from valet_session_ledger.store import Store

_log = logs.get(__name__)


class Projector:
    """Takes batches from the fold and stores them. While it stores one, the next one grows."""

    def __init__(self, store: Store, shards: Sequence[int], purger: Purger, start: int) -> None:
        self._store = store
        self._shards = shards
        self._purger = purger
        self._queue: deque[Batch] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.newest = start
        """Sequence of the newest event handed over."""
        self.backlog = 0
        """Events folded and not yet stored."""
        self.projected = Progress(start)
        """How far the read models have come."""

    def open_batch(self) -> Batch:
        """The batch to fold the next events into. To be followed, without waiting in between, by `folded`."""
        if not self._queue or len(self._queue[-1].events) >= limits.WRITE_BATCH:
            self._queue.append(Batch())
        return self._queue[-1]

    def folded(self, events: int, last_seq: int) -> None:
        """Some events were folded into the open batch, which now stands for the log up to `last_seq`."""
        self._queue[-1].last_seq = self.newest = last_seq
        self.backlog += events
        if self.backlog >= limits.BACKLOG:
            self._room.clear()
        self._filled.set()

    async def room(self) -> None:
        """Wait until the backlog is small enough to fold more."""
        await self._room.wait()

    async def flush(self) -> None:
        """Wait until everything folded so far is stored. Raises `TimeoutError`."""
        await self.projected.reach(self.newest, timeout=limits.PROJECTED_WAIT)

    async def run(self) -> None:
        """Store batches for ever."""
        while True:
            await self._filled.wait()
            while self._queue:
                batch = self._queue.popleft()
                await self._write(batch)
                self._stored(batch)
            self._filled.clear()

    def _stored(self, batch: Batch) -> None:
        self.backlog -= len(batch.events)
        if self.backlog < limits.BACKLOG // 2:
            self._room.set()
        self.projected.advance(batch.last_seq)
        if batch.usage or batch.turns:  # a message is whole, or a turn and with it its messages are over
            self._purger.wake()

    async def _write(self, batch: Batch) -> None:
        while True:
            try:
                await database.persist(lambda: self._store.write(batch, self._shards))
                return
            except asyncpg.PostgresError as error:
                # neither away nor the data's fault (no disk, no rights, …): a person must act, we go on trying
                _log.error("projection_fails", error=str(error), retry_in_s=limits.POISON_WAIT)
                await asyncio.sleep(limits.POISON_WAIT)
