"""Answers given on a command line: what each means for the question it is for. Pure."""

from collections.abc import Sequence

from valet_protocol.errors import BadRequest
from valet_protocol.events.agent import QuestionAsked
from valet_protocol.requests import QuestionView

from valet_local.cli import asking


def given(question: QuestionView, answers: Sequence[str]) -> list[list[str]]:
    """The answers as the API takes them. Raises `BadRequest` saying what can be answered."""
    asked = QuestionAsked(question_id=question.question_id, kind=question.kind, questions=question.questions)
    so_far = asking.begin(asked)
    if len(answers) != len(so_far.questions):
        raise BadRequest(
            "bad_answer", f"there are {len(so_far.questions)} questions and {len(answers)} answers; give one for each"
        )
    for text in answers:
        taken = asking.take(so_far, text)
        if taken is None:
            current = so_far.questions[len(so_far.answers)]
            choices = ", ".join(f"{n} = {option.label}" for n, option in enumerate(current.options, 1))
            raise BadRequest("bad_answer", f"{text!r} is not an answer to it; there is {choices}")
        so_far = taken
    return [list(one) for one in so_far.answers]
