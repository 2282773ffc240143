"""What the ledger answers by itself, and what becomes of answers that come too late for their turn. Pure."""

from valet_protocol.events import facts
from valet_protocol.events.agent import Question
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.ids import derived_id

from valet_session_ledger import limits
from valet_session_ledger.react_permissions import verdict_on
from valet_session_ledger.state import LateAnswer, OpenQuestion, SessionState


def answered(state: SessionState, now_ms: int) -> list[facts.QuestionAnswered]:
    """Permissions the policy decides, and defaults that are due."""
    decided: list[facts.QuestionAnswered] = []
    for question in state.questions:
        verdict = "ask" if question.kind == "question" else verdict_on(state.policy, question)
        if verdict != "ask":
            answer = "once" if verdict == "allow" else "reject"
            decided.append(
                facts.QuestionAnswered(question_id=question.question_id, answers=[[answer]], answered_by="policy")
            )
        elif question.due_ms <= now_ms:
            decided.append(
                facts.QuestionAnswered(
                    question_id=question.question_id,
                    answers=_default(question, state.policy),
                    answered_by="default",
                )
            )
    return decided


def _default(question: OpenQuestion, policy: SessionPolicy) -> list[list[str]]:
    """The first option of each question; a permission is refused unless the session says otherwise, because silence
    is not consent."""
    if question.kind == "permission":
        return [[policy.permission_default]]
    return [[item.options[0].label] if item.options else [] for item in question.questions]


def late_prompts(state: SessionState) -> list[facts.PromptAccepted]:
    """Answers to questions whose turn is gone, as prompts that tell the agent what it had asked."""
    return [
        facts.PromptAccepted(
            prompt_id=derived_id(state.session_id, "answer", late.question_id),
            content=_in_words(late),
            author=late.user or late.origin.author or state.owner,
            author_name=late.origin.author_name if late.user in (None, late.origin.author) else "",
            author_email=late.origin.author_email if late.user in (None, late.origin.author) else "",
            channel=late.origin.channel,
            model=late.origin.model or state.model,
            fallbacks=list(late.origin.fallbacks),
            variant=late.origin.variant,
            answers=late.question_id,
        )
        for late in state.late
    ]


def _in_words(late: LateAnswer) -> str:
    by = "Nobody answered in time, so the default counts." if late.user is None else "Here is the answer."
    lines = [f"You asked something before your sandbox was replaced. {by}"]
    for number, question in enumerate(late.questions):
        chosen = late.answers[number] if number < len(late.answers) else ()
        lines.append(f"Question: {_short(_text(question))}\nAnswer: {_short(', '.join(chosen)) or '(none)'}")
    lines.append("Go on from there.")
    return "\n\n".join(lines)


def _text(question: Question) -> str:
    return question.question or question.header


def _short(text: str) -> str:
    most = limits.LATE_QUESTION_CHARACTERS
    return text if len(text) <= most else text[:most] + " …"
