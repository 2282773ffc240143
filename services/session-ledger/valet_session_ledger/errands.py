"""Carrying out what a session has to do in the logs of others: `react_family.errands`.

Each errand may be done twice, by this process or by another replica: what it makes has an id of its own, so the second
time changes nothing. That it is done is a fact in the session's own log, and until then it is found again.
"""

import asyncio
from collections.abc import Callable

from valet_protocol.errors import Refused, Unavailable
from valet_protocol.events import facts
from valet_protocol.requests import (
    Accepted,
    CreateSession,
    Done,
    NoteParentTold,
    ReportChild,
    SessionView,
    SubmitPrompt,
    TerminateSession,
)
from valet_service import logs

from valet_session_ledger import limits
from valet_session_ledger.commands import Commands
from valet_session_ledger.peers import Peers
from valet_session_ledger.progress import Progress
from valet_session_ledger.react_family import End, Errand, Spawn, Tell, errands
from valet_session_ledger.reads import Reads
from valet_session_ledger.sessions import Live
from valet_session_ledger.state import SessionState

_log = logs.get(__name__)


class Errands:
    """One task for a session that has any, as long as it has."""

    def __init__(
        self,
        *,
        peers: Peers,
        commands: Commands,
        reads: Reads,
        projected: Progress,
        again_later: Callable[[str], None],
    ) -> None:
        self._peers = peers
        self._commands = commands
        self._reads = reads
        self._projected = projected
        self._again_later = again_later
        self._running: dict[str, asyncio.Task[None]] = {}
        self._changed: set[str] = set()
        """Sessions that changed while their task was running."""

    def touched(self, live: Live) -> None:
        """A session's state changed, or its time has come."""
        state = live.state
        if state is None or not errands(state):
            return
        if live.session_id in self._running:
            self._changed.add(live.session_id)
            return
        task = asyncio.create_task(self._run(live))
        self._running[live.session_id] = task
        task.add_done_callback(lambda _: self._ended(live))

    def _ended(self, live: Live) -> None:
        self._running.pop(live.session_id, None)
        if live.session_id in self._changed:
            self._changed.discard(live.session_id)
            self.touched(live)

    async def done(self, session_id: str) -> None:
        """Wait until a session has nothing under way, but not for long."""
        task = self._running.get(session_id)
        if task is not None:
            await asyncio.wait((task,), timeout=limits.SPAWN_WAIT)

    def stop(self) -> None:
        """End what is under way; the next start goes on with it."""
        self._changed.clear()
        for task in list(self._running.values()):
            task.cancel()

    async def _run(self, live: Live) -> None:
        state = live.state
        assert state is not None
        for errand in errands(state):
            try:
                await self._carry_out(state, errand)
            except Refused as refusal:
                _log.info("errand_waits", session=live.session_id, errand=type(errand).__name__, why=refusal.detail)
                self._again_later(live.session_id)
                return
            except Exception as error:  # noqa: BLE001 - a fault of ours; the errand is still to be done
                _log.exception("errand_failed", session=live.session_id, error=repr(error))
                self._again_later(live.session_id)
                return

    async def _carry_out(self, state: SessionState, errand: Errand) -> None:
        """Raises `Unavailable` for what is to be tried again; any other refusal is final, and noted."""
        match errand:
            case Spawn(request=request):
                await self._commands.note(await self._spawned(state, request))
            case End(child_id=child_id):
                await self._end(state, child_id)
            case Tell():
                await self._tell(state, errand)

    async def _spawned(self, state: SessionState, asked: facts.ChildRequested) -> ReportChild:
        child_id = asked.child_id
        child = next(item for item in state.children if item.session_id == child_id)
        origin = child.origin
        owners = origin.author == state.owner
        create = CreateSession(
            session_id=child_id,
            owner=state.owner,
            title=asked.title,
            repo=asked.repo,
            branch=asked.branch,
            model=asked.model,
            policy=asked.policy,
            orchestrator=asked.orchestrator,
            ancestors=[state.session_id, *state.ancestors],
        )
        prompt = SubmitPrompt(
            session_id=child_id,
            user=state.owner,
            prompt_id=asked.prompt_id,
            content=asked.prompt,
            author_name=origin.author_name if owners else "",
            author_email=origin.author_email if owners else "",
            sender=facts.Sender(session_id=state.session_id, title=state.title, hops=child.hops),
        )
        told = ReportChild(session_id=state.session_id, child_id=child_id, change="started", title=asked.title)
        try:
            await self._peers.ask(child_id, create, SessionView)
        except Unavailable:
            raise
        except Refused as refusal:
            _log.warning("child_not_made", session=state.session_id, child=child_id, why=refusal.detail)
            return ReportChild(
                session_id=state.session_id,
                child_id=child_id,
                change="failed",
                detail=refusal.detail,
                hops=child.hops,
            )
        try:
            await self._peers.ask(child_id, prompt, Accepted)
        except Unavailable:
            raise
        except Refused as refusal:
            # somebody ended it at once; it tells that itself
            _log.info("child_takes_no_prompt", session=state.session_id, child=child_id, why=refusal.detail)
        return told

    async def _end(self, state: SessionState, child_id: str) -> None:
        end = TerminateSession(
            session_id=child_id,
            user=state.owner,
            session=state.session_id,
            reason="The session that it worked for was ended.",
        )
        try:
            await self._peers.ask(child_id, end, Done)
        except Unavailable:
            raise
        except Refused as refusal:
            _log.warning("child_not_ended", session=state.session_id, child=child_id, why=refusal.detail)
            child = next(item for item in state.children if item.session_id == child_id)
            lost = ReportChild(
                session_id=state.session_id,
                child_id=child_id,
                change="failed",
                child_seq=child.heard_seq + 1,
                detail=refusal.detail,
                hops=child.hops,
            )
            await self._commands.note(lost)

    async def _tell(self, state: SessionState, errand: Tell) -> None:
        news = errand.news
        report = ReportChild(
            session_id=errand.parent,
            child_id=state.session_id,
            change=news.change,
            child_seq=news.seq,
            turn_id=news.turn_id,
            title=state.title,
            hops=news.hops,
            detail=news.detail or await self._last_words(state, errand),
        )
        try:
            await self._peers.ask(errand.parent, report, Done)
        except Unavailable:
            raise
        except Refused as refusal:
            _log.warning("parent_not_told", session=state.session_id, parent=errand.parent, why=refusal.detail)
        await self._commands.note(NoteParentTold(session_id=state.session_id, child_seq=news.seq))

    async def _last_words(self, state: SessionState, errand: Tell) -> str:
        """The end of what the agent said in a turn that it finished."""
        if errand.news.change != "turn_completed":
            return ""
        try:
            await self._projected.reach(errand.news.seq, limits.PROJECTED_WAIT)
        except TimeoutError as error:
            raise Unavailable("database_unavailable", "The database does not answer at the moment.") from error
        words = await self._reads.last_words(state.session_id, errand.news.turn_id)
        return words[-limits.NEWS_CHARACTERS :]
