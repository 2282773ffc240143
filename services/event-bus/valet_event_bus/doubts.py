"""Who takes part in a session does so in those below it. When somebody's part ends, the watchers below are doubted: the
ledger is asked once more, for each of them, whether they may still watch.

Nobody is cut without its answer. While it is away it is asked again every `limits.DOUBT_RETRY`: whoever lost their part
sees what happens below for as long as it is away, and that much longer. Nothing here holds up the reading of the log.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import msgspec
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import NotFound, Refused, Unavailable
from valet_protocol.requests import GetSession, SessionView
from valet_service import logs, rpc
from valet_service.owners import Owners

from valet_event_bus import limits
from valet_event_bus.access import Access

_log = logs.get(__name__)


class Watched(Protocol):
    """Who watches what."""

    def watchers(self) -> Iterable[tuple[str, str]]:
        """Session and user of everybody who watches or is about to."""
        ...

    def cut(self, user: str, session_id: str) -> None:
        """End the watching of a session by a user."""
        ...


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """The log says that somebody's part in a session has ended."""

    session_id: str
    user: str | None
    """Whose; none for everybody who came by a link that was revoked, whoever that is."""
    seq: int
    """Of the fact: an answer of a read model that has not got so far says nothing."""


class Doubts:
    """Settles doubts, some at a time. Run `run()` as a task."""

    def __init__(self, nc: Client, watched: Watched, access: Access, owners: Owners) -> None:
        self._nc = nc
        self._watched = watched
        self._access = access
        self._owners = owners
        self._open: dict[tuple[str, str | None], int] = {}
        """The latest fact by session and user. Stays open without an answer only for people who watch something."""
        self._raised: deque[tuple[str, str | None]] = deque()
        self._more = asyncio.Event()
        self._at_once = asyncio.Semaphore(limits.DOUBTS_AT_ONCE)

    def raise_doubt(self, doubt: Doubt) -> None:
        """Somebody's part has ended. Does not wait."""
        if doubt.user is None:
            self._access.forget()
        key = (doubt.session_id, doubt.user)
        if key not in self._open:
            self._raised.append(key)
            self._more.set()
        self._open[key] = doubt.seq

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._raised:
                    group.create_task(self._until_settled(*self._raised.popleft()))

    async def _until_settled(self, session_id: str, user: str | None) -> None:
        key, tried = (session_id, user), 0
        late: set[int] = set()
        while True:
            seq = self._open[key]
            try:
                async with self._at_once:
                    await self._settle(Doubt(session_id=session_id, user=user, seq=seq), late)
            except Refused as refusal:
                tried += 1
                log = _log.warning if tried == 1 else _log.debug
                log("access_not_known", session=session_id, reason=str(refusal))
                await asyncio.sleep(limits.DOUBT_RETRY)
                continue
            if self._open[key] == seq:
                del self._open[key]
                return

    async def _settle(self, doubt: Doubt, late: set[int]) -> None:
        """Ask about everybody whom it concerns. A second time does no harm. Raises `Refused` for no answer; the shard
        that gave none comes last the next time, so that it holds up its own sessions only."""
        known: set[str] = set()
        asked: set[tuple[str, str]] = set()
        for _ in range(2):  # the second time those who came meanwhile, perhaps with a yes from before
            pairs = {pair for pair in self._watched.watchers() if self._concerns(doubt, *pair)} - asked
            for session_id, user in sorted(pairs, key=lambda pair: subjects.shard_of(pair[0]) in late):
                try:
                    if session_id != doubt.session_id and not await self._is_below(session_id, doubt):
                        continue
                    if user not in known:
                        await self._known_above(doubt, user)
                        known.add(user)
                    asked.add((session_id, user))
                    if not await self._may_watch(session_id, user):
                        self._watched.cut(user, session_id)
                except Refused:
                    late.add(subjects.shard_of(session_id))
                    raise

    def _concerns(self, doubt: Doubt, session_id: str, user: str) -> bool:
        """Where its user is known, the hub has cut them off from the session itself."""
        return doubt.user is None or (user == doubt.user and session_id != doubt.session_id)

    async def _is_below(self, session_id: str, doubt: Doubt) -> bool:
        above: str | None = session_id
        for _ in range(limits.TREE_DEPTH):
            try:
                above = (await self._owners.of(above)).parent
            except NotFound:
                return False
            if above is None or above == doubt.session_id:
                return above is not None
        return True  # deeper than there are sessions; the answer decides

    async def _known_above(self, doubt: Doubt, user: str) -> None:
        """Raises `Unavailable` while the read model does not have the fact: it would still say yes of those below."""
        try:
            view = await self._ask(doubt.session_id, user)
        except NotFound:
            return
        if view.seq < doubt.seq:
            raise Unavailable("read_lags", "The ledger's read model is behind the log.")

    async def _may_watch(self, session_id: str, user: str) -> bool:
        try:
            await self._ask(session_id, user)
        except NotFound:
            return False
        return True

    async def _ask(self, session_id: str, user: str) -> SessionView:
        request = GetSession(session_id=session_id, user=user)
        subject = subjects.ledger_command(session_id, request.method)
        return await rpc.call(self._nc, subject, request, SessionView, timeout=limits.DOUBT_ANSWER)
