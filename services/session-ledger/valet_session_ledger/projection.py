"""From events to rows: what each event says to the read models. Pure, and cheap: it runs for every event.

All values are absolute (never `+ 1`), so writing a row twice, or by two replicas, does no harm.
"""

from valet_protocol.events import facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import (
    projection_commands,
    projection_conversation,
    projection_machine,
    projection_questions,
    projection_sharing,
    projection_shown,
    projection_turns,
    values,
)
from valet_session_ledger.projection_imported import project_imported
from valet_session_ledger.projection_questions import question_row
from valet_session_ledger.projection_turns import Projections, prompt_row
from valet_session_ledger.react import is_at_rest, next_due
from valet_session_ledger.rows import Batch, SessionRow, StateRow, Touched
from valet_session_ledger.state import SessionState, pack


def project(batch: Batch, before: SessionState, after: SessionState, event: Event) -> None:
    """Add what an event says to the batch. `before` and `after` are the states around it."""
    projection = _PROJECTIONS.get(type(event.data))
    if projection is not None:
        projection(batch, before, event, event.data)
    if after is not before:
        _prompts_without_turn(batch, before, after, event)
        if before.questions is not after.questions:
            _questions_dropped(batch, before, after, event)


def _prompts_without_turn(batch: Batch, before: SessionState, after: SessionState, event: Event) -> None:
    """What was on its way into a turn waits again; what waits when the session ends is dropped."""
    steering = () if before.turn is None else before.turn.steering
    if after.ended_seq == event.seq:
        for prompt in (*steering, *before.queue):
            prompt_row(batch, event, prompt.prompt_id, status="dropped")
    elif steering:
        waiting = {prompt.prompt_id for prompt in after.queue}
        for prompt in steering:
            if prompt.prompt_id in waiting:
                prompt_row(batch, event, prompt.prompt_id, status="queued")


def _questions_dropped(batch: Batch, before: SessionState, after: SessionState, event: Event) -> None:
    """Nobody waits any more for the answer to what is open no longer."""
    if isinstance(event.data, facts.QuestionAnswered):
        return
    still = {question.question_id for question in after.questions}
    for question in before.questions:
        if question.question_id not in still:
            question_row(batch, event, question.question_id, status="dropped")


def session_row(touched: Touched) -> SessionRow:
    """The row of a session in the state it is in."""
    state = touched.state
    return SessionRow(
        session_id=state.session_id,
        first_seq=0,
        seq=touched.seq,
        owner=values.text(state.owner),
        title=values.text(state.title),
        repo=values.text_or_none(state.repo),
        branch=values.text_or_none(state.branch),
        model=values.text(state.model),
        status=state.status,
        status_detail=values.text(state.detail),
        epoch=state.requested_epoch,
        turns=state.turns,
        active_turn=state.turn.turn_id if state.turn is not None else None,
        last_turn=state.last_turn,
        policy=values.json(state.policy),
        source_session=values.text_or_none(state.source_session),
        work=None if state.work is None else values.json(state.work),
        created_ms=state.created_ms,
        updated_ms=touched.updated_ms,
        next_due_ms=next_due(state),
        at_rest=is_at_rest(state),
        parent=state.parent,
        root=state.ancestors[-1] if state.ancestors else None,
        ancestors=values.json(state.ancestors) if state.ancestors else None,
        children=state.spawned,
        orchestrator=state.orchestrator,
        completed=state.completed,
    )


def state_row(touched: Touched) -> StateRow:
    """The snapshot of a session."""
    return StateRow(session_id=touched.state.session_id, seq=touched.state_seq, state=pack(touched.state))


def _event_imported(batch: Batch, before: SessionState, event: Event, data: facts.EventImported) -> None:
    project_imported(batch, before, event)


_PROJECTIONS: Projections = {
    **projection_turns.PROJECTIONS,
    **projection_conversation.PROJECTIONS,
    **projection_shown.PROJECTIONS,
    **projection_machine.PROJECTIONS,
    **projection_questions.PROJECTIONS,
    **projection_sharing.PROJECTIONS,
    **projection_commands.PROJECTIONS,
    facts.EventImported: _event_imported,
}
"""Events not listed say something to the session's row only."""
