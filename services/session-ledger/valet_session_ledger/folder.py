"""The fold loop: the log in order, into states, reactions and batches for the projector."""

import asyncio

from valet_service import database
from valet_service.log_reader import Entry, LogReader

from valet_session_ledger import limits
from valet_session_ledger.fold import fold
from valet_session_ledger.intake import Arrived, arrive, is_folded
from valet_session_ledger.progress import Progress
from valet_session_ledger.projector import Projector
from valet_session_ledger.reactor import Reactor
from valet_session_ledger.sessions import Live, Sessions


class Folder:
    """Folds the log from the checkpoints on. One for a process."""

    def __init__(self, sessions: Sessions, projector: Projector, reactor: Reactor, checkpoints: dict[int, int]) -> None:
        self._sessions = sessions
        self._projector = projector
        self._reactor = reactor
        self._checkpoints = checkpoints
        """Where each shard's fold begins: what is before is in the snapshots."""
        self._settled = max(checkpoints.values(), default=0)
        """Beyond this every shard is read."""
        self.folded = Progress(min(checkpoints.values(), default=0))
        """How far the states have come."""
        self.caught_up = asyncio.Event()
        """Set once, when everything that was in the log at the start is folded."""

    async def run(self, reader: LogReader, end: int) -> None:
        """Fold for ever. `end` is where the log ended at the start."""
        if reader.pending_at_start == 0:
            self.caught_up.set()
        while True:
            await self._projector.room()
            entries = await reader.batch(limits.FOLD_BATCH)
            await self.fold(entries)
            if not self.caught_up.is_set() and (entries[-1].pending == 0 or entries[-1].seq >= end):
                self.caught_up.set()

    async def fold(self, entries: list[Entry]) -> None:
        """Fold some entries, in order."""
        wanted = [entry for entry in entries if is_folded(entry.subject)]
        if wanted:
            arrived = [arrive(entry.seq, entry.subject, entry.payload) for entry in wanted]
            if arrived[0].seq <= self._settled:
                arrived = [item for item in arrived if item.seq > self._checkpoints[item.shard]]
            if arrived:
                await self._load(arrived)
            self._fold(arrived, wanted[-1].seq)
            self._sessions.let_go(self._projector.projected.seq)
        self.folded.advance(entries[-1].seq)

    async def _load(self, arrived: list[Arrived]) -> None:
        """Have every session in memory. One that begins here needs no PostgreSQL; others wait for it."""
        first: dict[str, Arrived] = {}
        for item in arrived:
            first.setdefault(item.session_id, item)
        absent = self._sessions.absent(first)
        if not absent:
            return
        known: list[str] = []
        for session_id in absent:
            if first[session_id].type == "fact.session_requested" and first[session_id].seq > self._settled:
                self._sessions.new(session_id)
            else:
                known.append(session_id)
        if known:
            await database.persist(lambda: self._sessions.load(known))

    def _fold(self, arrived: list[Arrived], last_seq: int) -> None:
        batch = self._projector.open_batch()
        changed: dict[str, Live] = {}
        before = len(batch.events)
        for item in arrived:
            live = self._sessions.use(item.session_id)
            if fold(live, item, batch):
                changed[item.session_id] = live
        self._projector.folded(len(batch.events) - before, last_seq)
        for live in changed.values():
            self._reactor.touched(live)
