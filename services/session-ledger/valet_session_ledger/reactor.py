"""Carrying out what `react` decides: appending its facts, and evaluating it again when something is due."""

import asyncio
import contextlib
import heapq
from collections.abc import Callable

import nats.errors
from valet_protocol.events.envelope import Data
from valet_service import database, logs
from valet_service.errors import AppendConflict, AppendUnknown, EventTooLarge

from valet_session_ledger import limits
from valet_session_ledger.appender import Appender
from valet_session_ledger.react import next_due, react
from valet_session_ledger.sessions import Live, Sessions
from valet_session_ledger.stamp import stamp

_log = logs.get(__name__)


class Reactor:
    """Evaluates `react` for sessions that changed or whose time has come."""

    def __init__(
        self,
        sessions: Sessions,
        appender: Appender,
        now_ms: Callable[[], int],
        seen_ms: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`seen_ms` gives since when, at a time, the log is seen without a break."""
        self._sessions = sessions
        self._appender = appender
        self._now_ms = now_ms
        self._seen_ms = seen_ms
        self._due: list[tuple[int, str]] = []
        self._sooner = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._on = False
        self.errands: Callable[[Live], None] = lambda live: None
        """Told of every state: what a session has to do in the logs of others."""

    def start(self) -> None:
        """The fold has caught up with the log: from now on decisions are made."""
        self._on = True

    def touched(self, live: Live) -> None:
        """A session's state changed, or its time has come."""
        state = live.state
        if state is None:
            return
        now_ms = self._now_ms()
        seen_ms = self._seen_ms(now_ms)
        due = next_due(state, seen_ms)
        if due is not None and due != live.due_ms:
            self.wake_at(due, live.session_id)
        live.due_ms = due
        if not self._on or live.appended > state.fact_seq:
            return  # a fact of ours is on its way back; then we are called again
        self.errands(live)
        if live.reacting:
            live.again = True
            return
        decided = react(state, now_ms, seen_ms)
        if decided:
            live.reacting = True
            task = asyncio.create_task(self._append(live, decided))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def wake_at(self, due_ms: int, session_id: str) -> None:
        """Evaluate a session at a time (ms since 1970)."""
        heapq.heappush(self._due, (due_ms, session_id))
        self._sooner.set()

    async def run(self) -> None:
        """Keep time for ever."""
        while True:
            self._sooner.clear()
            wait = None if not self._due else (self._due[0][0] - self._now_ms()) / 1000
            if wait is None or wait > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._sooner.wait(), wait)
                continue
            await self._look_again(heapq.heappop(self._due)[1])

    async def _look_again(self, session_id: str) -> None:
        try:
            live = await self._sessions.get(session_id)
        except database.UNAVAILABLE as error:
            _log.info("timer_waits_for_database", error=str(error) or type(error).__name__)
            self.wake_at(self._now_ms() + limits.REACT_RETRY_MS, session_id)
            return
        self.touched(live)

    async def _append(self, live: Live, decided: list[Data]) -> None:
        state = live.state
        assert state is not None
        expected = state.fact_seq
        try:
            for data in decided:
                event = stamp(live.session_id, state, data, self._now_ms())
                expected = await self._appender.append(event, expected)
                live.appended = max(live.appended, expected)
        except AppendConflict as conflict:
            # somebody else decided something: when it is folded, everything is looked at again
            _log.debug("react_conflict", session=live.session_id, conflict=str(conflict))
        except (AppendUnknown, EventTooLarge, nats.errors.Error) as error:
            _log.warning("react_not_appended", session=live.session_id, error=str(error))
            self.wake_at(self._now_ms() + limits.REACT_RETRY_MS, live.session_id)
        finally:
            live.reacting = False
            if live.again:
                live.again = False
                self.touched(live)
