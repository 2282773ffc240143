"""Answering what the agent asked, and changing how such things are treated. Pure; refusals are raised."""

from valet_protocol.errors import Conflict, NotFound, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import AnswerQuestion, ChangePolicy

from valet_session_ledger import limits
from valet_session_ledger.state import Answer, OpenQuestion, SessionState

PERMISSION_ANSWERS = ("once", "always", "reject")


def answer(state: SessionState, command: AnswerQuestion) -> list[Data]:
    """The first answer wins."""
    if given_before(state, command) is not None:
        return []
    question = _question(state, command)
    _check_answers(question, command.answers)
    return [
        facts.QuestionAnswered(
            question_id=question.question_id, answers=command.answers, answered_by="person", user=command.user
        )
    ]


def change_policy(state: SessionState, command: ChangePolicy) -> list[Data]:
    """Another policy, for what is open as well."""
    check_policy(command.policy)
    if command.policy == state.policy:
        return []
    return [facts.PolicyChanged(policy=command.policy, by=command.user)]


def check_policy(policy: facts.SessionPolicy) -> None:
    """Raises `Unprocessable` for one that cannot be kept."""
    if len(policy.permission_rules) > limits.POLICY_RULES:
        raise Unprocessable(
            "too_many_rules", f"A session has at most {limits.POLICY_RULES} permission rules; use wildcards."
        )
    if any(
        len(rule.permission) + len(rule.pattern) > limits.POLICY_RULE_CHARACTERS for rule in policy.permission_rules
    ):
        raise Unprocessable(
            "rule_too_long", f"A permission rule has at most {limits.POLICY_RULE_CHARACTERS} characters; use wildcards."
        )
    if policy.question_timeout_s < 0 or policy.permission_timeout_s < 0:
        raise Unprocessable("bad_timeout", "A time-out is a number of seconds, 0 or more.")


def given_before(state: SessionState, command: AnswerQuestion) -> Answer | None:
    """The same answer by the same person to the same question, if it was given."""
    if command.question_id is None and state.questions:
        return None
    answers = tuple(tuple(labels) for labels in command.answers)
    for given in reversed(state.answers):
        if command.question_id in (None, given.question_id):
            return given if (given.user, given.answers) == (command.user, answers) else None
    return None


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
