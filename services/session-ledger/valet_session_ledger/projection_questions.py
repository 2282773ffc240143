"""Questions and permissions, as rows. Pure."""

from typing import Any

from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import values
from valet_session_ledger.evolve_questions import due_ms, is_askable
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import Batch, QuestionRow
from valet_session_ledger.state import SessionState


def question_row(batch: Batch, event: Event, question_id: str, **said: Any) -> None:
    """What an event says of a question."""
    row = QuestionRow(
        session_id=event.session_id,
        question_id=values.identifier(question_id),
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.merge(batch.questions, (event.session_id, row.question_id), row)


def _question_asked(batch: Batch, before: SessionState, event: Event, data: agent.QuestionAsked) -> None:
    if any(item.question_id == data.question_id for item in (*before.questions, *before.answers)):
        return
    question_row(
        batch,
        event,
        data.question_id,
        status="open" if is_askable(before, event, data) else "dropped",
        kind=data.kind,
        questions=values.json(data.questions),
        due_ms=due_ms(before.policy, data.kind, event.time_ms),
        turn_id=None if event.turn is None else values.identifier(event.turn),
    )


def _question_answered(batch: Batch, before: SessionState, event: Event, data: facts.QuestionAnswered) -> None:
    question_row(
        batch,
        event,
        data.question_id,
        status="answered",
        answers=values.json(data.answers),
        answered_by=data.answered_by,
        answered_user=data.user,
    )


def _policy_changed(batch: Batch, before: SessionState, event: Event, data: facts.PolicyChanged) -> None:
    for question in before.questions:
        due = due_ms(data.policy, question.kind, question.asked_ms)
        question_row(batch, event, question.question_id, status="open", due_ms=due)


PROJECTIONS: Projections = {
    agent.QuestionAsked: _question_asked,
    facts.QuestionAnswered: _question_answered,
    facts.PolicyChanged: _policy_changed,
}
