"""Carrying out commands: decide on the present state, append, wait until it can be read back, reply."""

from collections.abc import Callable

import msgspec
import nats.errors
from msgspec.structs import replace
from valet_protocol.errors import Refused, Unavailable
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AddParticipant,
    AnswerQuestion,
    Attached,
    AttachRunner,
    ChangePolicy,
    CommandView,
    CreateSession,
    CreateShareLink,
    Done,
    EditPrompt,
    GetOwner,
    JoinSession,
    NoteParentTold,
    Owner,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    ReportChild,
    RequestChild,
    RequestCommand,
    RequestCompletion,
    RevokeShareLink,
    SessionView,
    SubmitPrompt,
    TerminateSession,
    WithdrawPrompt,
)
from valet_service import logs
from valet_service.errors import AppendConflict, AppendUnknown

from valet_session_ledger import limits
from valet_session_ledger.appender import Appender
from valet_session_ledger.decide import NOTHING, Known, accepted, attached, decide, effect_seq
from valet_session_ledger.decide_commands import command_receipt_of
from valet_session_ledger.decide_prompts import not_remembered, receipt_of
from valet_session_ledger.decide_sharing import not_found
from valet_session_ledger.progress import Progress
from valet_session_ledger.reads import Reads
from valet_session_ledger.sessions import Live, Sessions
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState
from valet_session_ledger.store import Store, patiently

PromptChange = EditPrompt | WithdrawPrompt | ReorderQueue
Sharing = AddParticipant | RemoveParticipant | CreateShareLink | RevokeShareLink
Family = RequestChild | ReportChild | NoteParentTold | RequestCompletion
Simple = PromptChange | Sharing | Family | AnswerQuestion | AbortTurn | TerminateSession | RenameSession | ChangePolicy
"""Commands that are answered by where they took effect."""
Command = Simple | CreateSession | SubmitPrompt | JoinSession | RequestCommand | AttachRunner

_log = logs.get(__name__)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command took effect."""

    live: Live
    seq: int


class Commands:
    """The ledger's commands, one method each; a method's result is the reply."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        appender: Appender,
        folded: Progress,
        projected: Progress,
        store: Store,
        reads: Reads,
        now_ms: Callable[[], int],
    ) -> None:
        self._sessions = sessions
        self._appender = appender
        self._folded = folded
        self._projected = projected
        self._store = store
        self._reads = reads
        self._now_ms = now_ms

    async def create_session(self, command: CreateSession) -> SessionView:
        """Start a session."""
        await self._readable(await self._carry_out(command))
        return await self._reads.session_by_id(command.session_id, command.owner)

    async def submit_prompt(self, command: SubmitPrompt) -> Accepted:
        """Queue a prompt."""
        effect = await self._carry_out(command)
        await self._readable(effect)
        return accepted(_state(effect.live), command.prompt_id, effect.seq)

    async def carry_out(self, command: Simple) -> Done:
        """Any command whose reply says no more than that it took effect."""
        effect = await self._carry_out(command)
        await self._readable(effect)
        return Done(seq=effect.seq)

    async def join_session(self, command: JoinSession) -> SessionView:
        """Join by a link."""
        await self._readable(await self._carry_out(command))
        return await self._reads.session_by_id(command.session_id, command.user)

    async def request_command(self, command: RequestCommand) -> CommandView:
        """Have something done between turns."""
        await self._readable(await self._carry_out(command))
        return await self._reads.command_by_id(command.session_id, command.request_id)

    async def attach_runner(self, command: AttachRunner) -> Attached:
        """A runner takes its session over. It reads nothing back, so it does not wait for PostgreSQL."""
        effect = await self._carry_out(command)
        await self._wait(self._folded, effect.seq)
        return attached(_state(effect.live), effect.seq)

    async def note(self, command: ReportChild | NoteParentTold) -> None:
        """What an errand has come to. Nobody reads it back, so it does not wait for PostgreSQL."""
        effect = await self._carry_out(command)
        await self._wait(self._folded, effect.seq)

    async def get_owner(self, request: GetOwner) -> Owner:
        """Whose session it is."""
        state = await self.state(request.session_id)
        return Owner(
            session_id=state.session_id, user=state.owner, parent=state.parent, orchestrator=state.orchestrator
        )

    async def state(self, session_id: str) -> SessionState:
        """The present state. Raises `NotFound`, `Unavailable`."""
        live = await self._live(session_id)
        if live.state is None:
            await self._catch_up(session_id)
            live = await self._live(session_id)
        if live.state is None:
            raise not_found()
        return live.state

    async def _carry_out(self, command: Command) -> Effect:
        """Decide and append until nobody is in between. Raises `Refused`."""
        fresh = False
        for _ in range(limits.DECIDE_ATTEMPTS):
            try:
                live = await self._live(command.session_id)
                async with live.lock:
                    await self._wait(self._folded, live.appended)
                    return await self._decide(live, command)
            except AppendConflict as conflict:
                _log.debug("command_conflict", session=command.session_id, conflict=str(conflict))
                await self._catch_up(command.session_id)
            except Refused as refusal:
                if fresh or isinstance(refusal, Unavailable):
                    raise
                # perhaps only because something already in the log is not folded yet
                await self._catch_up(command.session_id)
                fresh = True
            except (AppendUnknown, nats.errors.Error) as error:
                raise Unavailable(
                    "log_unavailable", "The event log does not answer at the moment; try again."
                ) from error
        raise Unavailable("session_contended", "Too much happens in this session at once; try again.")

    async def _decide(self, live: Live, command: Command) -> Effect:
        state = live.state
        known = NOTHING if state is None else await self._known(live, state, command)
        decided = decide(state, command, now_ms=self._now_ms(), known=known)
        if not decided:
            assert state is not None
            return Effect(live=live, seq=effect_seq(state, command, known))
        seq = 0 if state is None else state.fact_seq
        for data in decided:
            event = stamp(command.session_id, state, data, self._now_ms())
            live.appended = seq = await self._appender.append(event, seq)
        return Effect(live=live, seq=seq)

    async def _known(self, live: Live, state: SessionState, command: Command) -> Known:
        """What the read model adds: receipts the state may have forgotten, the message a command is about, and what is
        above the session or beside it."""
        known = await self._known_of(live, state, command)
        user: str = getattr(command, "user", "")
        if not state.ancestors or not user or state.role_of(user) == "owner":
            return known
        ancestors = state.ancestors
        return replace(known, role=await patiently(lambda: self._store.role_above(ancestors, user)))

    async def _known_of(self, live: Live, state: SessionState, command: Command) -> Known:
        session_id = command.session_id
        match command:
            case RequestChild():
                root = state.ancestors[-1] if state.ancestors else session_id
                return Known(living=await patiently(lambda: self._store.living_in_tree(root)))
            case SubmitPrompt() | EditPrompt() | WithdrawPrompt():
                prompt_id = command.prompt_id
                if len(state.receipts) < limits.RECEIPTS or receipt_of(state, prompt_id) is not None:
                    return NOTHING
                return Known(prompt=await patiently(lambda: self._store.prompt_receipt(session_id, prompt_id)))
            case ReorderQueue():
                old = not_remembered(state, command.prompt_ids)
                if not old or len(state.receipts) < limits.RECEIPTS:
                    return NOTHING
                return Known(prompts=await patiently(lambda: self._store.prompts_given(session_id, old)))
            case RemoveParticipant(participant=participant):
                if any(item.user == participant for item in state.participants):
                    return NOTHING
                await self._wait(self._projected, live.last_seq)
                return Known(took_part=await patiently(lambda: self._store.took_part(session_id, participant)))
            case RequestCommand(request_id=request_id, message_id=message_id):
                receipt, target = command_receipt_of(state, request_id), None
                if receipt is None and len(state.command_receipts) >= limits.COMMAND_RECEIPTS:
                    receipt = await patiently(lambda: self._store.command_receipt(session_id, request_id))
                if receipt is None and message_id is not None:
                    await self._wait(self._projected, live.last_seq)
                    target = await patiently(lambda: self._store.message_target(session_id, message_id))
                return Known(command=receipt, target=target)
            case _:
                return NOTHING

    async def _live(self, session_id: str) -> Live:
        if self._sessions.present(session_id) is not None:
            return self._sessions.use(session_id)
        return await patiently(lambda: self._sessions.get(session_id))

    async def _catch_up(self, session_id: str) -> None:
        """Wait until everything about a session that is in the log by now is folded."""
        try:
            ends = [await self._appender.last(session_id, source) for source in ("fact", "agent", "sandbox")]
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable("log_unavailable", "The event log does not answer at the moment; try again.") from error
        await self._wait(self._folded, max(end.seq for end in ends))

    async def _readable(self, effect: Effect) -> None:
        """Wait until whoever reads next sees the effect. It has happened in any case; a repetition says so."""
        try:
            await self._projected.reach(effect.seq, limits.PROJECTED_WAIT)
        except TimeoutError as error:
            raise Unavailable(
                "database_unavailable",
                "The request is recorded and will be carried out, but the database does not answer at the moment;"
                " send it again with the same Idempotency-Key to hear its result.",
            ) from error

    async def _wait(self, progress: Progress, seq: int) -> None:
        try:
            await progress.reach(seq, limits.FOLD_WAIT)
        except TimeoutError as error:
            raise Unavailable("log_unavailable", "The event log is behind at the moment; try again.") from error


def _state(live: Live) -> SessionState:
    assert live.state is not None
    return live.state
