"""What the agent asks and what it is answered, as lines. Pure."""

import msgspec
from valet_protocol.events import agent, facts

from valet_local.cli.pieces import Span, one_line
from valet_local.cli.transcript import Rendered, Transcript, lines


def question_asked(state: Transcript, data: agent.QuestionAsked) -> Rendered:
    state = msgspec.structs.replace(state, questions={**state.questions, data.question_id: data})
    wait = f" in {state.question_timeout_s:g} s" if state.question_timeout_s is not None else " at its deadline"
    if data.kind == "permission":
        what = f"{data.permission or 'something'} {', '.join(data.patterns)}"
        after = "" if state.permissions == "auto-approve" else f"  (refused{wait} if nobody answers)"
        return lines(state, "question", (Span(f"? May the agent use {one_line(what)}", "ask"), Span(after, "dim")))
    rows: list[tuple[Span, ...]] = []
    for question in data.questions:
        rows.append((Span(f"? {one_line(question.question, 400)}", "ask"),))
        for number, option in enumerate(question.options, 1):
            about = f" — {one_line(option.description)}" if option.description else ""
            default = f"  ← taken{wait} if nobody answers" if number == 1 else ""
            rows.append((Span(f"  {number}. {one_line(option.label)}"), Span(f"{about}{default}", "dim")))
    return lines(state, "question", *rows)


def question_answered(state: Transcript, data: facts.QuestionAnswered) -> Rendered:
    given = "; ".join(", ".join(one_line(label) for label in answer) for answer in data.answers) or "no answer"
    by = {"default": "the default: nobody answered in time", "policy": "by the session's policy"}.get(
        data.answered_by, f"answered by {data.user}" if data.user else "answered"
    )
    state = msgspec.structs.replace(
        state, questions={key: value for key, value in state.questions.items() if key != data.question_id}
    )
    return lines(state, "question", (Span(f"→ {given}", "strong"), Span(f"  ({by})", "dim")))


def question_resolved(state: Transcript, data: agent.QuestionResolved) -> Rendered:
    if data.question_id not in state.questions:
        return state, ()
    rest = {key: value for key, value in state.questions.items() if key != data.question_id}
    state = msgspec.structs.replace(state, questions=rest)
    return lines(state, "question", (Span(f"→ no longer asked ({data.outcome})", "dim"),))


RENDERERS = {
    agent.QuestionAsked: question_asked,
    agent.QuestionResolved: question_resolved,
    facts.QuestionAnswered: question_answered,
}
