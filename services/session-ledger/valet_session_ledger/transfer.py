"""Sessions made of other sessions' events: forks and imports.

What is to be copied is settled by the new session's first fact; everything after it can be done again, by anybody, from
where the log says that it is.
"""

import asyncio
from collections.abc import Collection
from weakref import WeakValueDictionary

from valet_protocol import subjects
from valet_protocol.errors import Conflict, Forbidden, Unavailable, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.requests import (
    Done,
    ForkPlan,
    ForkSession,
    GetSession,
    ImportEvents,
    ListSuperfluousWork,
    PlanFork,
    SessionView,
    SuperfluousWork,
)
from valet_service import logs

from valet_session_ledger import limits, transfer_lines, transfer_plan
from valet_session_ledger.history_archive import NEWEST, Archive
from valet_session_ledger.reads import Reads
from valet_session_ledger.transfer_appends import Appends
from valet_session_ledger.transfer_events import (
    Selection,
    Told,
    believed_work,
    cut_off,
    imported,
    prompt_of,
    prompts_with_a_turn,
    told,
)
from valet_session_ledger.transfer_place import Place

_GIVES_TURNS = ("fact.turn_dispatched", "agent.prompt_taken", "fact.event_imported")

_log = logs.get(__name__)


class Transfers:
    """The ledger's requests about forks and imports, one method each; a method's result is the reply."""

    def __init__(self, archive: Archive, appends: Appends, reads: Reads) -> None:
        self._archive = archive
        self._appends = appends
        self._reads = reads
        self._forks: dict[str, asyncio.Task[Place]] = {}
        self._imports: dict[str, Place] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def plan_fork(self, request: PlanFork) -> ForkPlan:
        """What a fork at a message would start from."""
        await self._source(request.session_id, request.user)
        point = (await self._planner(request.session_id)).point(request.message_id)
        return ForkPlan(at=point.at, work=point.work)

    async def list_superfluous_work(self, request: ListSuperfluousWork) -> SuperfluousWork:
        """Saved work from which no fork starts any more."""
        return SuperfluousWork(objects=(await self._planner(request.session_id)).superfluous())

    async def fork_session(self, request: ForkSession) -> SessionView:
        """Make a fork. Goes on by itself when its requester has gone; whoever asks again hears of its end."""
        task = self._forks.get(request.session_id)
        if task is None:
            task = self._start(request.session_id, request)
        done, _ = await asyncio.wait((task,), timeout=limits.FORK_WAIT)
        if not done:
            raise Unavailable("fork_running", "The fork is being made; send the request again to hear of its end.")
        made = await task
        _check_same(made, request)
        await self._appends.readable(made.fact_seq)
        return await self._reads.get_session(GetSession(session_id=request.session_id, user=request.owner))

    async def resume(self, shards: Collection[int]) -> None:
        """Go on with the forks that a stop or a crash left half done."""
        try:
            unfinished = await self._archive.unfinished_imports()
        except Unavailable as refusal:
            _log.warning("forks_not_resumed", reason=refusal.detail)
            return
        for session_id in unfinished:
            if subjects.shard_of(session_id) in shards and session_id not in self._forks:
                self._start(session_id, None)

    def stop(self) -> None:
        """End what is under way; the next start goes on with it."""
        for task in list(self._forks.values()):
            task.cancel()

    # -- forks -------------------------------------------------------------------------------------------------

    def _start(self, session_id: str, request: ForkSession | None) -> asyncio.Task[Place]:
        task = asyncio.create_task(self._appends.until_done(lambda: self._fork(session_id, request)))
        self._forks[session_id] = task

        def ended(task: asyncio.Task[Place]) -> None:
            self._forks.pop(session_id, None)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _log.info("fork_not_finished", session=session_id, reason=str(error))

        task.add_done_callback(ended)
        return task

    async def _fork(self, session_id: str, request: ForkSession | None) -> Place:
        """From wherever it is to its end. Raises `Refused`, `AppendConflict`."""
        at = await self._appends.place(session_id)
        if not at.exists:
            if request is None:
                return at
            begun = await self._begun(request)
            await self._appends.append(session_id, at, begun)
            at.begun = begun
        if request is not None:
            _check_same(at, request)
        if at.begun is None or not at.begun.forked or at.completed or at.over:
            return at
        await self._copy(session_id, at, at.begun)
        return at

    async def _begun(self, request: ForkSession) -> facts.SessionImported:
        source = await self._source(request.source_session, request.owner)
        point = (await self._planner(request.source_session)).point(request.message_id, request.work)
        return facts.SessionImported(
            owner=request.owner,
            title=source.title if request.title is None else request.title,
            repo=source.repo,
            branch=source.branch,
            model=source.model,
            policy=source.policy,
            source_session=request.source_session,
            source_seq=point.at,
            message_id=request.message_id,
            forked=True,
            work=request.work,
            idempotency_key=request.idempotency_key,
        )

    async def _copy(self, session_id: str, at: Place, begun: facts.SessionImported) -> None:
        prompts: set[str] = set()
        async for rows in self._archive.pages(begun.source_session, until=begun.source_seq, types=_GIVES_TURNS):
            for row in rows:
                event = told(row.seq, row.session_id, row.type, row.payload)
                prompts.update(() if event is None else prompts_with_a_turn(event))
        selection = Selection()
        async for rows in self._archive.pages(begun.source_session, until=begun.source_seq):
            for row in rows:
                event = told(row.seq, row.session_id, row.type, row.payload)
                if event is None or not selection.takes(event) or event.seq <= at.source_seq:
                    continue
                if isinstance(event.data, agent.WorkSaved) and believed_work(event, begun.source_session) is None:
                    continue
                prompt = prompt_of(event)
                if prompt is None or prompt in prompts:  # one that still waits is not the fork's to carry out
                    await self._appends.append(session_id, at, imported(event))
        await self._appends.append(session_id, at, facts.ImportCompleted(events=at.events))
        at.completed = True

    async def _planner(self, session_id: str) -> transfer_plan.Planner:
        planner = transfer_plan.Planner(session_id)
        async for rows in self._archive.pages(session_id, until=NEWEST, types=transfer_plan.READ):
            for row in rows:
                event = told(row.seq, row.session_id, row.type, row.payload)
                if event is not None:
                    planner.show(event)
        return planner

    async def _source(self, session_id: str, user: str) -> SessionView:
        source = await self._reads.get_session(GetSession(session_id=session_id, user=user))
        if source.role == "viewer":
            raise Forbidden("role_too_low", "Viewers cannot fork a session; ask its owner to make you a collaborator.")
        return source

    # -- imports -----------------------------------------------------------------------------------------------

    async def import_events(self, request: ImportEvents) -> Done:
        """Take over one page of an export."""
        session_id = request.session_id
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            try:
                at = await self._appends.until_done(lambda: self._import(request))
            except BaseException:
                # what of the page is in the log is read from there when it comes again
                self._imports.pop(session_id, None)
                raise
            if at.completed:
                self._imports.pop(session_id, None)
        await self._appends.readable(at.fact_seq)
        return Done(seq=at.fact_seq)

    async def _import(self, request: ImportEvents) -> Place:
        """Raises `Refused`, `AppendConflict`."""
        session_id, lines = request.session_id, request.events
        at = self._imports.pop(session_id, None) or await self._appends.place(session_id)
        _check_page(at, request)
        if at.completed:
            return at
        events = transfer_lines.read(
            lines, offset=request.offset, source_session=request.source_session, after=at.source_seq
        )
        if at.begun is None:
            await self._begin(request, at, transfer_lines.beginning(events[0] if events else None))
        selection = Selection(epoch=at.epoch, turn=at.turn, bookmarks=True)
        for event in events:
            await self._take_over(session_id, at, event, selection)
        if request.last:
            await self._finish(session_id, at, request)
        at.lines = max(at.lines or 0, request.offset + len(lines))
        self._imports[session_id] = at
        if len(self._imports) > limits.IMPORTS_REMEMBERED:
            del self._imports[next(iter(self._imports))]
        return at

    async def _begin(self, request: ImportEvents, at: Place, first: transfer_lines.Beginning) -> None:
        begun = facts.SessionImported(
            owner=request.owner,
            title=first.title if request.title is None else request.title,
            repo=first.repo,
            branch=first.branch,
            model=first.model,
            policy=first.policy,
            source_session=request.source_session,
            source_seq=0,
            work=request.work,
            idempotency_key=request.idempotency_key,
        )
        await self._appends.append(request.session_id, at, begun)
        at.begun = begun

    async def _take_over(self, session_id: str, at: Place, event: Told, selection: Selection) -> None:
        if isinstance(event.data, facts.RunnerAttached) and not event.taken_over:
            at.epoch = event.data.epoch
        # saved work is an object of another installation, or, if the file says so, of somebody else here
        if not selection.takes(event) or isinstance(event.data, agent.WorkSaved):
            return
        if isinstance(event.data, facts.SessionRenamed):
            at.title = event.data.title
        await self._appends.append(session_id, at, imported(event))

    async def _finish(self, session_id: str, at: Place, request: ImportEvents) -> None:
        assert at.begun is not None
        if at.turn is not None:
            await self._appends.append(session_id, at, cut_off(at.turn, at.source_seq, self._appends.now_ms()))
        if request.title is None and at.title and at.title != at.begun.title:
            await self._appends.append(session_id, at, facts.SessionRenamed(title=at.title, by=request.owner))
        await self._appends.append(session_id, at, facts.ImportCompleted(events=at.events))
        at.completed = True


def _check_same(at: Place, request: ForkSession) -> None:
    """The same request again is the same fork; another one must not find it under its id."""
    begun = at.begun
    if begun is None or not begun.forked or begun.owner != request.owner:
        raise Conflict("session_exists", "A session with this id is there already; choose another id.")
    if (begun.source_session, begun.message_id) != (request.source_session, request.message_id) or (
        request.title is not None and request.title != begun.title
    ):
        raise Unprocessable(
            "idempotency_key_reused", "This key (or id) was used before for a different request; use a new one."
        )
    if at.over and not at.completed:
        raise Conflict("session_ended", "The session was ended before the fork was complete; make another one.")


def _check_page(at: Place, request: ImportEvents) -> None:
    """Raises `Refused` for a page that does not go on where the import is."""
    if at.exists and (at.begun is None or at.begun.forked or at.begun.owner != request.owner):
        raise Conflict("session_exists", "A session with this id is there already; choose another id.")
    if at.begun is not None and at.begun.source_session != request.source_session:
        raise Conflict("session_exists", "Events of another session are being imported under this id.")
    if at.over and not at.completed:
        raise Conflict("session_ended", "The session was ended before its import was complete; import it again.")
    if not at.exists and request.offset:
        raise Conflict("import_not_begun", "The first page of this import has not come; send the pages in order.")
    if at.lines is not None and request.offset > at.lines:
        raise Conflict(
            "page_missing", f"The page before line {request.offset + 1} has not come; go on at line {at.lines + 1}."
        )
    if not request.events and not at.exists:
        raise Unprocessable("bad_import", "There is nothing in the file; export a session to get one.")
