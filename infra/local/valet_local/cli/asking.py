"""Answers typed by a person: what a line means for a question. Pure."""

import msgspec
from valet_protocol.events.agent import Question, QuestionAsked, QuestionOption

_PERMISSION = Question(
    question="",
    options=[QuestionOption(label="once"), QuestionOption(label="always"), QuestionOption(label="reject")],
    custom=False,
)


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A set of questions and the answers given so far."""

    question_id: str
    questions: tuple[Question, ...]
    answers: tuple[tuple[str, ...], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every question has its answer."""
        return len(self.answers) >= len(self.questions)

    @property
    def prompt(self) -> str:
        """What to ask next."""
        question = self.questions[len(self.answers)]
        which = f"{question.header or question.question}: " if len(self.questions) > 1 else ""
        how = "numbers with commas" if question.multiple else "a number"
        free = " or your own words" if question.custom else ""
        if question.options and question.options[0].label in ("once", "allow"):
            how = "/".join(option.label for option in question.options)
        return f"{which}answer ({how}{free}): "


def begin(asked: QuestionAsked) -> Asking:
    """A question or permission that is to be put to a person."""
    questions = tuple(asked.questions)
    if asked.kind == "permission":
        questions = (_PERMISSION,)
    return Asking(question_id=asked.question_id, questions=questions)


def take(asking: Asking, line: str) -> Asking | None:
    """The line as answer to the next question; None when it cannot be one."""
    chosen = _chosen(asking.questions[len(asking.answers)], line.strip())
    return None if chosen is None else msgspec.structs.replace(asking, answers=(*asking.answers, chosen))


def _chosen(question: Question, line: str) -> tuple[str, ...] | None:
    if not line:
        return None
    words = [word.strip() for word in line.split(",")] if question.multiple else [line]
    labels = [_label(question.options, word) for word in words]
    known = tuple(label for label in labels if label is not None)
    if len(known) == len(labels):
        return known
    return (line,) if question.custom else None


def _label(options: list[QuestionOption], word: str) -> str | None:
    if word.isdigit() and 1 <= int(word) <= len(options):
        return options[int(word) - 1].label
    return next((option.label for option in options if option.label.casefold() == word.casefold()), None)
