"""Folding questions, permissions and the policy they are treated by. Pure."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.events.facts import SessionPolicy

from valet_session_ledger import limits
from valet_session_ledger.state import ENDED, ActiveTurn, Answer, LateAnswer, OpenQuestion, SessionState


def is_askable(state: SessionState, event: Event, data: agent.QuestionAsked) -> bool:
    """Whether a question is taken: of the present turn (or of none), and not known already."""
    turn = state.turn
    if state.phase in ENDED or (event.turn is not None and (turn is None or turn.turn_id != event.turn)):
        return False
    known = (*state.questions, *state.answers)
    return all(question.question_id != data.question_id for question in known)


def due_ms(policy: SessionPolicy, kind: str, asked_ms: int) -> int:
    """When a question or permission gets its default."""
    timeout = policy.permission_timeout_s if kind == "permission" else policy.question_timeout_s
    return asked_ms + max(0, round(min(timeout * 1000, limits.QUESTION_LONGEST_MS)))


def after_turn(questions: tuple[OpenQuestion, ...], turn: ActiveTurn, *, lost: bool) -> tuple[OpenQuestion, ...]:
    """What stays open when a turn is over: questions of turns whose runner is gone. A permission never does: what it
    was for waits no more."""
    kept: list[OpenQuestion] = []
    for question in questions:
        if question.parked is not None:
            kept.append(question)
        elif lost and question.kind == "question" and question.turn_id == turn.turn_id:
            kept.append(replace(question, parked=turn.origin))
    return tuple(kept)


def _question_asked(state: SessionState, event: Event, data: agent.QuestionAsked) -> SessionState:
    if not is_askable(state, event, data):
        return state
    question = OpenQuestion(
        question_id=data.question_id,
        kind=data.kind,
        questions=tuple(data.questions),
        due_ms=due_ms(state.policy, data.kind, event.time_ms),
        turn_id=event.turn,
        asked_ms=event.time_ms,
        permission=data.permission or "",
        patterns=tuple(data.patterns),
    )
    return replace(state, questions=(*state.questions, question))


def _question_answered(state: SessionState, event: Event, data: facts.QuestionAnswered) -> SessionState:
    question = next((item for item in state.questions if item.question_id == data.question_id), None)
    answers = tuple(tuple(labels) for labels in data.answers)
    answer = Answer(question_id=data.question_id, answers=answers, user=data.user, seq=event.seq)
    late, turn = state.late, state.turn
    if question is not None and question.parked is not None:
        late = (
            *late,
            LateAnswer(
                question_id=question.question_id,
                questions=question.questions,
                answers=answers,
                user=data.user,
                origin=question.parked,
            ),
        )
    elif turn is not None:
        turn = replace(turn, since_ms=event.time_ms)
    return replace(
        state,
        questions=_without(state.questions, data.question_id),
        answers=(*state.answers, answer)[-limits.ANSWERS :],
        late=late,
        turn=turn,
        hops=0 if data.answered_by == "person" else state.hops,
    )


def _question_resolved(state: SessionState, event: Event, data: agent.QuestionResolved) -> SessionState:
    """The agent waits no more. One that outlives its turn has no agent that could say so."""
    resolved = next((item for item in state.questions if item.question_id == data.question_id), None)
    if resolved is None or resolved.parked is not None:
        return state
    return replace(state, questions=_without(state.questions, data.question_id))


def _policy_changed(state: SessionState, event: Event, data: facts.PolicyChanged) -> SessionState:
    questions = tuple(
        replace(question, due_ms=due_ms(data.policy, question.kind, question.asked_ms)) for question in state.questions
    )
    return replace(state, policy=data.policy, questions=questions)


def _without(questions: tuple[OpenQuestion, ...], question_id: str) -> tuple[OpenQuestion, ...]:
    return tuple(question for question in questions if question.question_id != question_id)


FOLDS: dict[type[Data], Callable[[SessionState, Event, Any], SessionState]] = {
    facts.QuestionAnswered: _question_answered,
    facts.PolicyChanged: _policy_changed,
    agent.QuestionAsked: _question_asked,
    agent.QuestionResolved: _question_resolved,
}
