"""Folding: the only place where a session's state changes. Pure; the same log gives the same state, always."""

from typing import Any

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import (
    evolve_commands,
    evolve_family,
    evolve_questions,
    evolve_sandbox,
    evolve_sharing,
    evolve_turns,
    limits,
)
from valet_session_ledger.digests import session_digest
from valet_session_ledger.state import SessionState


def counts(state: SessionState | None, event: Event) -> bool:
    """Whether an event is folded at all: one of a runner other than the attached one is archived and no more."""
    if not event.type.startswith("agent."):
        return True
    return state is not None and bool(event.epoch) and event.epoch == state.attached_epoch


def evolve(state: SessionState | None, event: Event) -> SessionState | None:
    """The state after an event that counts. None before the session was requested or imported.

    Events that change nothing give back the very same object.
    """
    data = event.data
    if state is None:
        if isinstance(data, facts.SessionRequested):
            return _requested(event, data)
        return _imported(event, data) if isinstance(data, facts.SessionImported) else None
    fold = _FOLDS.get(type(data))
    after = state if fold is None else evolve_family.with_news(state, fold(state, event, data), event)
    if event.type.startswith("fact."):
        return replace(after, fact_seq=event.seq)
    # noted now and then only, so that most events of a turn leave the state as it is
    if event.time_ms - after.heard_ms >= limits.HEARD_STEP_MS and after.turn is not None and event.epoch:
        return replace(after, heard_ms=event.time_ms)
    return after


# -- the session -------------------------------------------------------------------------------------------


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
        asked=session_digest(data.repo, data.branch, data.model, data.title, data.policy),
        ancestors=tuple(data.ancestors),
        orchestrator=data.orchestrator,
        fact_seq=event.seq,
    )


def _imported(event: Event, data: facts.SessionImported) -> SessionState:
    """Like one that was requested, but nothing begins before the import is complete."""
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
        source_session=data.source_session,
        import_due_ms=event.time_ms + limits.IMPORT_DEADLINE_MS,
        work=data.work,
        base_commit=None if data.work is None else data.work.base_commit,
        fact_seq=event.seq,
    )


def _event_imported(state: SessionState, event: Event, data: facts.EventImported) -> SessionState:
    """What happened elsewhere decides nothing here; its turns count, and a session without a title takes that of its
    source."""
    if data.type == "fact.turn_dispatched":
        return replace(state, turns=state.turns + 1)
    title = data.data.get("title")
    if state.given_title or not title or not isinstance(title, str):
        return state
    if data.type == "agent.session_titled":
        return replace(state, title=title)
    if data.type in ("fact.session_requested", "fact.session_imported", "fact.session_renamed"):
        return replace(state, title=title, given_title=title)
    return state


def _import_completed(state: SessionState, event: Event, data: facts.ImportCompleted) -> SessionState:
    if state.import_due_ms is None:
        return state
    return replace(state, import_due_ms=None, phase="hibernated", detail="")


def _renamed(state: SessionState, event: Event, data: facts.SessionRenamed) -> SessionState:
    return replace(state, title=data.title, given_title=data.title)


def _titled(state: SessionState, event: Event, data: agent.SessionTitled) -> SessionState:
    if state.given_title or not data.title:
        return state
    return replace(state, title=data.title)


def _session_failed(state: SessionState, event: Event, data: facts.SessionFailed) -> SessionState:
    return _ended(state, event, phase="failed", detail=data.detail)


def _session_terminated(state: SessionState, event: Event, data: facts.SessionTerminated) -> SessionState:
    return _ended(state, event, phase="terminated", detail=data.detail, completed=data.completed, ended_by=data.session)


def _ended(state: SessionState, event: Event, **changes: Any) -> SessionState:
    return replace(
        state,
        **changes,
        ended_seq=event.seq,
        queue=(),
        turn=None if state.turn is None else replace(state.turn, steering=()),
        questions=(),
        late=(),
        notices=(),
        completing=None,
        failure=None,
        recover=False,
        boot_deadline_ms=None,
        hold_until_ms=None,
        import_due_ms=None,
    )


_FOLDS: evolve_turns.Folds = {
    **evolve_sandbox.FOLDS,
    **evolve_turns.FOLDS,
    **evolve_questions.FOLDS,
    **evolve_sharing.FOLDS,
    **evolve_commands.FOLDS,
    **evolve_family.FOLDS,
    facts.SessionFailed: _session_failed,
    facts.SessionTerminated: _session_terminated,
    facts.SessionRenamed: _renamed,
    facts.EventImported: _event_imported,
    facts.ImportCompleted: _import_completed,
    agent.SessionTitled: _titled,
}
"""Events not listed leave the state as it is."""
