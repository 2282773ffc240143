"""Commands: what a person or a runner asks for, decided on the session's state. Pure; refusals are raised.

A command that has taken effect before gives no facts and the same reply: every command may be sent again.
"""

from collections.abc import Callable
from typing import Any

from valet_protocol.errors import Conflict, NotFound, TooMany, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AnswerQuestion,
    Attached,
    AttachRunner,
    CreateSession,
    Request,
    SubmitPrompt,
    TerminateSession,
)

from valet_session_ledger import limits
from valet_session_ledger.state import BOOTING, Answer, OpenQuestion, Receipt, SessionState, prompt_digest

PERMISSION_ANSWERS = ("once", "always", "reject")


def decide(state: SessionState | None, command: Request, earlier: Receipt | None = None) -> list[Data]:
    """The facts a command makes, usually one; none if it has taken effect before. Raises `Refused`.

    `earlier` is the receipt of a prompt too old for the state to remember, if there is one.
    """
    if isinstance(command, CreateSession):
        return _create(state, command)
    if isinstance(command, SubmitPrompt):
        return _submit(_owned(state, command.user), command, earlier)
    if isinstance(command, AttachRunner):
        return _attach(state, command)
    decision = _DECISIONS[type(command)]
    return decision(_owned(state, getattr(command, "user", "")), command)


def _create(state: SessionState | None, command: CreateSession) -> list[Data]:
    if state is None:
        return [
            facts.SessionRequested(
                owner=command.owner,
                title=command.title,
                repo=command.repo,
                branch=command.branch,
                model=command.model,
                policy=command.policy,
                idempotency_key=command.idempotency_key,
            )
        ]
    if state.owner != command.owner:
        raise Conflict("session_exists", "A session with this id belongs to somebody else; choose another id.")
    asked = (command.repo, command.branch, command.model, command.title, command.policy)
    if asked != (state.repo, state.branch, state.model, state.given_title, state.policy):
        raise _reused()
    return []


def _submit(state: SessionState, command: SubmitPrompt, earlier: Receipt | None) -> list[Data]:
    model = command.model or state.model
    receipt = receipt_of(state, command.prompt_id) or earlier
    if receipt is not None:
        if receipt.digest != prompt_digest(command.content, command.mode, model, command.channel):
            raise _reused()
        return []
    if state.phase == "terminated":
        raise Conflict("session_ended", "The session was ended and takes no more prompts; start a new one.")
    if state.phase == "failed" or state.failure is not None:
        why = state.failure.detail if state.failure is not None else state.detail
        raise Conflict("session_failed", f"The session has failed and takes no more prompts: {why}")
    waiting = sum(len(prompt.content) for prompt in state.queue)
    if len(state.queue) >= limits.QUEUED_PROMPTS or waiting + len(command.content) > limits.QUEUED_CHARACTERS:
        raise TooMany(
            "queue_full",
            f"{len(state.queue)} prompts are waiting already; wait for some to finish, or stop the session.",
        )
    return [
        facts.PromptAccepted(
            prompt_id=command.prompt_id,
            content=command.content,
            mode=command.mode,
            author=command.user,
            channel=command.channel,
            model=model,
            idempotency_key=command.idempotency_key,
        )
    ]


def _answer(state: SessionState, command: AnswerQuestion) -> list[Data]:
    given = given_before(state, command)
    if given is not None:
        return []
    question = _question(state, command)
    _check_answers(question, command.answers)
    return [
        facts.QuestionAnswered(
            question_id=question.question_id, answers=command.answers, answered_by="person", user=command.user
        )
    ]


def _question(state: SessionState, command: AnswerQuestion) -> OpenQuestion:
    if command.question_id is None:
        match state.questions:
            case ():
                raise Conflict("no_open_question", "No question is open in this session.")
            case (only,):
                return only
            case several:
                ids = ", ".join(question.question_id for question in several)
                raise Unprocessable("question_ambiguous", f"Several questions are open; say which one: {ids}")
    for question in state.questions:
        if question.question_id == command.question_id:
            return question
    if any(answer.question_id == command.question_id for answer in state.answers):
        raise Conflict("already_answered", "The question has been answered already; the first answer counts.")
    raise NotFound("question_not_found", "No question with this id is open in this session.")


def _check_answers(question: OpenQuestion, answers: list[list[str]]) -> None:
    expected = len(question.questions) if question.kind == "question" else 1
    if len(answers) != expected:
        raise Unprocessable(
            "wrong_answers", f"There are {expected} questions and {len(answers)} answers; give one list for each."
        )
    if question.kind == "permission":
        if len(answers[0]) != 1 or answers[0][0] not in PERMISSION_ANSWERS:
            raise Unprocessable("wrong_answers", f"Answer a permission with one of {', '.join(PERMISSION_ANSWERS)}.")
        return
    for item, chosen in zip(question.questions, answers, strict=True):
        labels = [option.label for option in item.options]
        if len(chosen) > 1 and not item.multiple:
            raise Unprocessable("wrong_answers", f"{item.question!r} takes one answer.")
        if not item.custom and any(label not in labels for label in chosen):
            raise Unprocessable("wrong_answers", f"{item.question!r} takes only: {', '.join(labels)}")


def _abort(state: SessionState, command: AbortTurn) -> list[Data]:
    if state.turn is None:
        raise Conflict("nothing_running", "No turn is running in this session.")
    if state.turn.interrupt_due_ms is not None:
        return []
    return [facts.TurnInterruptRequested(turn_id=state.turn.turn_id, by=command.user)]


def _terminate(state: SessionState, command: TerminateSession) -> list[Data]:
    return [] if state.phase == "terminated" else [facts.SessionTerminated(by=command.user)]


def _attach(state: SessionState | None, command: AttachRunner) -> list[Data]:
    if state is None:
        raise NotFound("session_not_found", "There is no such session.")
    epoch = command.epoch
    if epoch > state.requested_epoch:
        raise Conflict("unknown_epoch", f"No sandbox of epoch {epoch} was requested.")
    if epoch < max(state.requested_epoch, state.attached_epoch):
        raise Conflict(
            "replaced", f"The session has moved on to epoch {state.requested_epoch}; this runner is not needed."
        )
    if state.attached_epoch == epoch and (state.phase in BOOTING or state.phase == "ready"):
        return []
    if state.phase not in BOOTING:
        raise Conflict("replaced", f"The session is {state.phase}; this runner is not needed.")
    return [
        facts.RunnerAttached(
            epoch=epoch, runner_version=command.runner_version, opencode_version=command.opencode_version
        )
    ]


# -- what has happened before ----------------------------------------------------------------------------------


def receipt_of(state: SessionState, prompt_id: str) -> Receipt | None:
    """The receipt of a prompt, if the state remembers it."""
    return next((receipt for receipt in reversed(state.receipts) if receipt.prompt_id == prompt_id), None)


def given_before(state: SessionState, command: AnswerQuestion) -> Answer | None:
    """The same answer by the same person to the same question, if it was given."""
    if command.question_id is None and state.questions:
        return None
    answers = tuple(tuple(labels) for labels in command.answers)
    for answer in reversed(state.answers):
        if command.question_id in (None, answer.question_id):
            return answer if (answer.user, answer.answers) == (command.user, answers) else None
    return None


def effect_seq(state: SessionState, command: Request, earlier: Receipt | None = None) -> int:
    """The sequence at which a command that gave no facts took effect."""
    if isinstance(command, SubmitPrompt):
        receipt = receipt_of(state, command.prompt_id) or earlier
        return receipt.seq if receipt is not None else state.fact_seq
    if isinstance(command, AnswerQuestion):
        answer = given_before(state, command)
        return answer.seq if answer is not None else state.fact_seq
    if isinstance(command, AbortTurn) and state.turn is not None:
        return state.turn.interrupt_seq
    if isinstance(command, TerminateSession):
        return state.ended_seq
    return state.fact_seq


def accepted(state: SessionState, prompt_id: str, seq: int) -> Accepted:
    """The reply to `SubmitPrompt`."""
    if any(prompt.prompt_id == prompt_id for prompt in state.queue):
        return Accepted(prompt_id=prompt_id, seq=seq, status="queued")
    active = state.turn is not None and state.turn.prompt_id == prompt_id
    return Accepted(prompt_id=prompt_id, seq=seq, status="dispatched" if active else "done")


def attached(state: SessionState, seq: int) -> Attached:
    """The reply to `AttachRunner`."""
    waiting = state.turn is not None and state.turn.started_epoch is None
    return Attached(
        seq=seq,
        base_commit=state.base_commit,
        active_turn=state.turn.turn_id if state.turn is not None and waiting else None,
    )


def _owned(state: SessionState | None, user: str) -> SessionState:
    """Somebody else's session is not even there."""
    if state is None or state.owner != user:
        raise NotFound("session_not_found", "There is no such session, or it is not yours.")
    return state


def _reused() -> Unprocessable:
    return Unprocessable(
        "idempotency_key_reused", "This key (or id) was used before for a different request; use a new one."
    )


_DECISIONS: dict[type[Request], Callable[[SessionState, Any], list[Data]]] = {
    AnswerQuestion: _answer,
    AbortTurn: _abort,
    TerminateSession: _terminate,
}
