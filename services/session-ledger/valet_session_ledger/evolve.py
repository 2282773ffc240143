"""Folding: the only place where a session's state changes. Pure; the same log gives the same state, always."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger import limits
from valet_session_ledger.state import (
    BOOTING,
    ENDED,
    ActiveTurn,
    Answer,
    Failure,
    OpenQuestion,
    QueuedPrompt,
    Receipt,
    SessionState,
    prompt_digest,
)

Fold = Callable[[SessionState, Event, Any], SessionState]


def counts(state: SessionState | None, event: Event) -> bool:
    """Whether an event is folded at all: one of a runner other than the attached one is archived and no more."""
    if not event.type.startswith("agent."):
        return True
    return state is not None and bool(event.epoch) and event.epoch == state.attached_epoch


def evolve(state: SessionState | None, event: Event) -> SessionState | None:
    """The state after an event that counts. None before the session was requested.

    Events that change nothing give back the very same object.
    """
    data = event.data
    if state is None:
        return _requested(event, data) if isinstance(data, facts.SessionRequested) else None
    fold = _FOLDS.get(type(data))
    after = state if fold is None else fold(state, event, data)
    if event.type.startswith("fact."):
        return replace(after, fact_seq=event.seq)
    return after


def _requested(event: Event, data: facts.SessionRequested) -> SessionState:
    return SessionState(
        session_id=event.session_id,
        owner=data.owner,
        repo=data.repo,
        branch=data.branch,
        model=data.model,
        given_title=data.title,
        title=data.title,
        policy=data.policy,
        created_ms=event.time_ms,
        fact_seq=event.seq,
    )


# -- facts -------------------------------------------------------------------------------------------------


def _sandbox_requested(state: SessionState, event: Event, data: facts.SandboxRequested) -> SessionState:
    return replace(
        state,
        phase="requested" if data.epoch == 1 else "restoring",
        requested_epoch=data.epoch,
        recoveries=state.recoveries + (data.reason == "recovery"),
        recover=False,
        boot_deadline_ms=data.boot_deadline_ms,
        hold_until_ms=None,
    )


def _release_requested(state: SessionState, event: Event, data: facts.SandboxReleaseRequested) -> SessionState:
    return replace(state, released=data.reason)


def _runner_attached(state: SessionState, event: Event, data: facts.RunnerAttached) -> SessionState:
    return replace(state, attached_epoch=data.epoch, boot_deadline_ms=event.time_ms + limits.READY_DEADLINE_MS)


def _prompt_accepted(state: SessionState, event: Event, data: facts.PromptAccepted) -> SessionState:
    prompt = QueuedPrompt(
        prompt_id=data.prompt_id,
        content=data.content,
        model=data.model,
        author=data.author,
        channel=data.channel,
        mode=data.mode,
    )
    receipt = Receipt(
        prompt_id=data.prompt_id,
        digest=prompt_digest(data.content, data.mode, data.model, data.channel),
        seq=event.seq,
    )
    return replace(
        state,
        queue=(*state.queue, prompt),
        receipts=(*state.receipts, receipt)[-limits.RECEIPTS :],
        # somebody is there again: whatever stopped the platform is over
        hold_until_ms=None if state.phase == "hibernated" else state.hold_until_ms,
    )


def _turn_dispatched(state: SessionState, event: Event, data: facts.TurnDispatched) -> SessionState:
    return replace(
        state,
        queue=tuple(prompt for prompt in state.queue if prompt.prompt_id != data.prompt_id),
        turn=ActiveTurn(turn_id=data.turn_id, prompt_id=data.prompt_id),
        turns=state.turns + 1,
    )


def _interrupt_requested(state: SessionState, event: Event, data: facts.TurnInterruptRequested) -> SessionState:
    if not is_active(state, data.turn_id) or state.turn is None:
        return state
    due = event.time_ms + limits.INTERRUPT_DEADLINE_MS
    return replace(state, turn=replace(state.turn, interrupt_due_ms=due, interrupt_seq=event.seq))


def _turn_interrupted(state: SessionState, event: Event, data: facts.TurnInterrupted) -> SessionState:
    return _turn_over(state) if is_active(state, data.turn_id) else state


def _question_answered(state: SessionState, event: Event, data: facts.QuestionAnswered) -> SessionState:
    answer = Answer(
        question_id=data.question_id,
        answers=tuple(tuple(labels) for labels in data.answers),
        user=data.user,
        seq=event.seq,
    )
    return replace(_without_question(state, data.question_id), answers=(*state.answers, answer)[-limits.ANSWERS :])


def _session_failed(state: SessionState, event: Event, data: facts.SessionFailed) -> SessionState:
    return _ended(state, event, phase="failed", detail=data.detail)


def _session_terminated(state: SessionState, event: Event, data: facts.SessionTerminated) -> SessionState:
    return _ended(state, event, phase="terminated", detail="")


def _ended(state: SessionState, event: Event, **changes: Any) -> SessionState:
    return replace(
        state,
        **changes,
        ended_seq=event.seq,
        queue=(),
        failure=None,
        recover=False,
        boot_deadline_ms=None,
        hold_until_ms=None,
    )


# -- the sandbox controller ----------------------------------------------------------------------------------


def _provisioning(state: SessionState, event: Event, data: sandbox.SandboxProvisioning) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    phase = "provisioning" if state.phase == "requested" else state.phase
    if state.attached_epoch == data.epoch:
        return replace(state, phase=phase)
    return replace(state, phase=phase, boot_deadline_ms=event.time_ms + limits.ATTACH_DEADLINE_MS)


def _sandbox_ready(state: SessionState, event: Event, data: sandbox.SandboxReady) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in ("requested", "provisioning"):
        return state
    return replace(state, phase="booting")


def _sandbox_failed(state: SessionState, event: Event, data: sandbox.SandboxFailed) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    if not data.retryable:
        return replace(state, failure=Failure(code="sandbox_failed", detail=data.detail))
    return _lost(state, event, data.detail)


def _sandbox_lost(state: SessionState, event: Event, data: sandbox.SandboxLost) -> SessionState:
    if data.epoch != state.requested_epoch or (state.phase not in BOOTING and state.phase != "ready"):
        return state
    return _lost(state, event, data.detail)


def _lost(state: SessionState, event: Event, detail: str) -> SessionState:
    turn = state.turn
    if turn is not None and turn.started_epoch is None:
        turn = replace(turn, losses=turn.losses + 1)
    pause = limits.RECOVERY_PAUSE_MS << state.recoveries if state.recoveries else 0
    return replace(
        state,
        phase="lost",
        detail=detail,
        turn=turn,
        recover=state.phase != "ready" or turn is not None or bool(state.queue),
        boot_deadline_ms=None,
        hold_until_ms=event.time_ms + pause if pause else None,
    )


def _sandbox_terminated(state: SessionState, event: Event, data: sandbox.SandboxTerminated) -> SessionState:
    """Asked for by the ledger it is the end of an ended session; otherwise a loss like any other."""
    if data.epoch != state.requested_epoch or (state.phase not in BOOTING and state.phase != "ready"):
        return state
    return _lost(state, event, "The sandbox was ended.")


def _hibernated(state: SessionState, event: Event, data: sandbox.SandboxHibernated) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase in ENDED:
        return state
    stopping = data.reason == "platform_stopped"
    return replace(
        state,
        phase="hibernated",
        detail="The platform was stopped." if stopping else data.reason,
        recover=False,
        boot_deadline_ms=None,
        hold_until_ms=event.time_ms + limits.PLATFORM_STOP_HOLD_MS if stopping else None,
    )


# -- the runner ----------------------------------------------------------------------------------------------


def _runner_ready(state: SessionState, event: Event, data: agent.RunnerReady) -> SessionState:
    if state.attached_epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    return replace(
        state,
        phase="ready",
        detail="",
        ready_epoch=state.attached_epoch,
        recoveries=0,
        boot_deadline_ms=None,
        base_commit=state.base_commit or data.base_commit,
    )


def _boot_failed(state: SessionState, event: Event, data: agent.BootFailed) -> SessionState:
    if state.phase not in BOOTING:
        return state
    code = "clone_failed" if data.stage == "clone" else "sandbox_failed"
    return replace(state, failure=Failure(code=code, detail=data.detail))


def _turn_started(state: SessionState, event: Event, data: agent.TurnStarted) -> SessionState:
    if state.turn is None or not is_active(state, data.turn_id):
        return state
    return replace(state, turn=replace(state.turn, started_epoch=event.epoch))


def _turn_ended(state: SessionState, event: Event, data: agent.TurnEnded) -> SessionState:
    return _turn_over(state) if is_active(state, data.turn_id) else state


def _question_asked(state: SessionState, event: Event, data: agent.QuestionAsked) -> SessionState:
    if not is_askable(state, event, data):
        return state
    question = OpenQuestion(
        question_id=data.question_id,
        kind=data.kind,
        questions=tuple(data.questions),
        due_ms=question_due_ms(state, event),
        turn_id=event.turn,
    )
    return replace(state, questions=(*state.questions, question))


def _question_resolved(state: SessionState, event: Event, data: agent.QuestionResolved) -> SessionState:
    return _without_question(state, data.question_id)


def _titled(state: SessionState, event: Event, data: agent.SessionTitled) -> SessionState:
    if state.given_title or not data.title:
        return state
    return replace(state, title=data.title)


# -- shared ------------------------------------------------------------------------------------------------


def is_active(state: SessionState, turn_id: str) -> bool:
    """Whether a turn is the session's present one."""
    return state.turn is not None and state.turn.turn_id == turn_id


def is_askable(state: SessionState, event: Event, data: agent.QuestionAsked) -> bool:
    """Whether a question is taken: of the present turn (or of none), and not known already."""
    if state.phase in ENDED or (event.turn is not None and not is_active(state, event.turn)):
        return False
    known = (*state.questions, *state.answers)
    return all(question.question_id != data.question_id for question in known)


def question_due_ms(state: SessionState, event: Event) -> int:
    """When a question asked by this event gets its default."""
    wait = min(state.policy.question_timeout_s * 1000, limits.QUESTION_LONGEST_MS)
    return event.time_ms + max(0, round(wait))


def _turn_over(state: SessionState) -> SessionState:
    assert state.turn is not None
    return replace(state, turn=None, last_turn=state.turn.turn_id, questions=())


def _without_question(state: SessionState, question_id: str) -> SessionState:
    left = tuple(question for question in state.questions if question.question_id != question_id)
    return state if len(left) == len(state.questions) else replace(state, questions=left)


_FOLDS: dict[type[Data], Fold] = {
    facts.SandboxRequested: _sandbox_requested,
    facts.SandboxReleaseRequested: _release_requested,
    facts.RunnerAttached: _runner_attached,
    facts.PromptAccepted: _prompt_accepted,
    facts.TurnDispatched: _turn_dispatched,
    facts.TurnInterruptRequested: _interrupt_requested,
    facts.TurnInterrupted: _turn_interrupted,
    facts.QuestionAnswered: _question_answered,
    facts.SessionFailed: _session_failed,
    facts.SessionTerminated: _session_terminated,
    sandbox.SandboxProvisioning: _provisioning,
    sandbox.SandboxReady: _sandbox_ready,
    sandbox.SandboxFailed: _sandbox_failed,
    sandbox.SandboxLost: _sandbox_lost,
    sandbox.SandboxHibernated: _hibernated,
    sandbox.SandboxTerminated: _sandbox_terminated,
    agent.RunnerReady: _runner_ready,
    agent.BootFailed: _boot_failed,
    agent.TurnStarted: _turn_started,
    agent.TurnEnded: _turn_ended,
    agent.QuestionAsked: _question_asked,
    agent.QuestionResolved: _question_resolved,
    agent.SessionTitled: _titled,
}
"""Events not listed leave the state as it is."""
