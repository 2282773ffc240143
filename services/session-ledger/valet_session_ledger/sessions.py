"""The sessions in memory: their present states, read back from snapshots when needed, let go when projected."""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Collection

from valet_session_ledger import limits
from valet_session_ledger.state import SessionState
from valet_session_ledger.store import Store


class Live:
    """One session in memory. The fold alone changes `state`, `seq` and `state_seq`."""

    __slots__ = ("again", "appended", "due_ms", "last_seq", "lock", "reacting", "session_id", "state", "state_seq")

    def __init__(self, session_id: str, state: SessionState | None = None, state_seq: int = 0) -> None:
        self.session_id = session_id
        self.state = state
        self.state_seq = state_seq
        """Sequence of the last event that changed the state."""
        self.last_seq = state_seq
        """Sequence of the last event seen."""
        self.appended = 0
        """Sequence of the last fact this process appended."""
        self.lock = asyncio.Lock()
        """Held while a command decides and appends."""
        self.reacting = False
        self.again = False
        """Something changed while `reacting`."""
        self.due_ms: int | None = None
        """The time for which a timer is set."""

    def may_go(self, projected: int) -> bool:
        """Whether everything it knows is in the database and nobody is using it."""
        return max(self.last_seq, self.appended) <= projected and not self.lock.locked() and not self.reacting


class Sessions:
    """Live sessions by id, the longest unused first out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: OrderedDict[str, Live] = OrderedDict()

    def present(self, session_id: str) -> Live | None:
        """A session that is in memory."""
        return self._live.get(session_id)

    def absent(self, session_ids: Collection[str]) -> list[str]:
        """Which of some sessions are not in memory."""
        return [session_id for session_id in session_ids if session_id not in self._live]

    def new(self, session_id: str) -> Live:
        """A session that is just being requested: there is no snapshot to read."""
        return self._live.setdefault(session_id, Live(session_id))

    async def load(self, session_ids: Collection[str]) -> None:
        """Bring sessions into memory; one without a snapshot has no state. Raises asyncpg's errors."""
        wanted = self.absent(session_ids)
        if not wanted:
            return
        snapshots = await self._store.snapshots(wanted)
        for session_id in wanted:
            snapshot = snapshots.get(session_id)
            live = Live(session_id) if snapshot is None else Live(session_id, snapshot.state, snapshot.seq)
            # somebody may have been faster, and the fold may have moved on with theirs
            self._live.setdefault(session_id, live)

    async def get(self, session_id: str) -> Live:
        """A session, from memory or its snapshot. Raises asyncpg's errors."""
        if session_id not in self._live:
            await self.load([session_id])
        self._live.move_to_end(session_id)
        return self._live[session_id]

    def use(self, session_id: str) -> Live:
        """A session known to be in memory, marked as used."""
        self._live.move_to_end(session_id)
        return self._live[session_id]

    def let_go(self, projected: int) -> None:
        """Forget the longest unused ones beyond the limit, as far as the database has what they know."""
        excess = len(self._live) - limits.LIVE_SESSIONS
        if excess <= 0:
            return
        free = (session_id for session_id, live in self._live.items() if live.may_go(projected))
        for session_id in list(itertools.islice(free, excess)):
            del self._live[session_id]

    def all(self) -> list[Live]:
        """Every session in memory."""
        return list(self._live.values())
