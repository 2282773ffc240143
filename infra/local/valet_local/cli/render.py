"""A session's events as a transcript: (state, entry) → (state, pieces). Pure.

Text is written as its chunks arrive. A chunk's offset says where it belongs: what is already written is not
written again, and after a gap (a follower that begins in the middle) the part waits for its completed text.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data

from valet_local.cli import render_tools
from valet_local.cli.pieces import Piece, Span, Style, dollars, one_line, printable, seconds
from valet_local.client.follow import Entry


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """Where a transcript stands."""

    written: dict[str, int] = {}
    """Characters written of each text part that is not complete."""
    finished: frozenset[str] = frozenset()
    """Text parts of this turn that are complete."""
    block: str = ""
    """What was written last: a part's id, or the name of a kind of line."""
    in_line: bool = False
    """Whether the last character written was not a newline."""
    helpers: frozenset[str] = frozenset()
    """Messages of sub-agents, whose text is shown whole and aside."""
    live: bool = False
    """Whether what comes is happening now. Of history only the end of a tool call is shown, because there its
    text is whole, and comes after the call's first states."""
    calls: dict[str, agent.ToolUpdated] = {}
    """Tool calls under way, by part, as they were last shown."""
    questions: dict[str, agent.QuestionAsked] = {}
    question_timeout_s: float | None = None
    """From the session's policy, once seen."""
    permissions: str = ""
    """Likewise: `ask` or `auto-approve`."""


_TURN_OVER: dict[str, Any] = {
    "finished": frozenset(),
    "written": {},
    "helpers": frozenset(),
    "questions": {},
    "calls": {},
}
"""What is forgotten when a turn ends."""

Rendered = tuple[Transcript, tuple[Piece, ...]]


def render(state: Transcript, entry: Entry) -> Rendered:
    """What an event adds to the transcript; most add nothing."""
    data = entry.data
    renderer = _RENDERERS.get(type(data))
    if renderer is not None:
        return renderer(state, data)
    if isinstance(data, Delta):
        return _delta(state, data, entry.envelope.type)
    return state, ()


def synced(state: Transcript) -> Rendered:
    """History is over: what was under way at its end is shown, and from now on every state."""
    state = msgspec.structs.replace(state, live=True)
    pieces: tuple[Piece, ...] = ()
    for part_id, call in state.calls.items():
        state, more = _tool_lines(state, part_id, render_tools.lines(call))
        pieces += more
    return state, pieces


def _lines(
    state: Transcript, block: str, *lines: tuple[Span, ...], key: str | None = None, aside: bool = False
) -> Rendered:
    """Whole lines; a blank one before them where the kind of what is written changes."""
    pieces: list[Piece] = []
    if not aside:
        if state.in_line:
            pieces.append(Piece(spans=(Span("\n"),)))
        if state.block and state.block != block:
            pieces.append(Piece(spans=(Span("\n"),)))
        state = msgspec.structs.replace(state, block=block, in_line=False)
    pieces += (Piece(spans=(*line, Span("\n")), key=key, aside=aside) for line in lines)
    return state, tuple(pieces)


def _aside(state: Transcript, text: str, style: Style = "dim") -> Rendered:
    return _lines(state, "aside", (Span(text, style),), aside=True)


def _text(state: Transcript, part_id: str, text: str, style: Style) -> Rendered:
    """A piece of running text."""
    if not text:
        return state, ()
    pieces: list[Piece] = []
    if state.block != part_id:
        if state.in_line:
            pieces.append(Piece(spans=(Span("\n"),)))
        if state.block:
            pieces.append(Piece(spans=(Span("\n"),)))
    pieces.append(Piece(spans=(Span(printable(text), style),)))
    return msgspec.structs.replace(state, block=part_id, in_line=not text.endswith("\n")), tuple(pieces)


def _delta(state: Transcript, data: Delta, type: str) -> Rendered:
    have = state.written.get(data.part_id, 0)
    if data.part_id in state.finished or data.message_id in state.helpers or data.offset > have:
        return state, ()
    fresh = data.text[have - data.offset :]
    state = msgspec.structs.replace(state, written={**state.written, data.part_id: have + len(fresh)})
    return _text(state, data.part_id, fresh, "reasoning" if type == "delta.reasoning" else "text")


def _text_completed(state: Transcript, data: agent.TextCompleted) -> Rendered:
    if data.part_id in state.finished:
        return state, ()
    have = state.written.get(data.part_id, 0)
    state = msgspec.structs.replace(
        state,
        written={part: count for part, count in state.written.items() if part != data.part_id},
        finished=state.finished | {data.part_id},
    )
    if data.message_id in state.helpers:
        return _lines(state, "helper", (Span(f"↳ {one_line(data.text)}", "dim"),))
    state, pieces = _text(state, data.part_id, data.text[have:], "reasoning" if data.kind == "reasoning" else "text")
    if state.in_line and state.block == data.part_id:  # whoever reads the transcript by lines has it now
        state, end = msgspec.structs.replace(state, in_line=False), (Piece(spans=(Span("\n"),)),)
        pieces += end
    return state, pieces


def _message_created(state: Transcript, data: agent.MessageCreated) -> Rendered:
    if data.parent_session is None:
        return state, ()
    return msgspec.structs.replace(state, helpers=state.helpers | {data.message_id}), ()


def _tool_updated(state: Transcript, data: agent.ToolUpdated) -> Rendered:
    if data.tool == "question" and data.status != "error":
        return state, ()  # the question itself is shown
    before = state.calls.get(data.part_id)
    calls = {part: call for part, call in state.calls.items() if part != data.part_id}
    if data.status in ("pending", "running"):
        calls[data.part_id] = data
    state = msgspec.structs.replace(state, calls=calls)
    shown = render_tools.lines(data)
    if data.part_id in calls and (not state.live or (before and render_tools.lines(before) == shown)):
        return state, ()
    return _tool_lines(state, data.part_id, shown)


def _tool_lines(state: Transcript, part_id: str, shown: list[tuple[Span, ...]]) -> Rendered:
    state, pieces = _lines(state, "tools", shown[0], key=part_id)
    state, more = _lines(state, "tools", *shown[1:])
    return state, pieces + more


def _question_asked(state: Transcript, data: agent.QuestionAsked) -> Rendered:
    state = msgspec.structs.replace(state, questions={**state.questions, data.question_id: data})
    wait = f" in {state.question_timeout_s:g} s" if state.question_timeout_s is not None else " at its deadline"
    if data.kind == "permission":
        what = f"{data.permission or 'something'} {', '.join(data.patterns)}"
        after = "" if state.permissions == "auto-approve" else f"  (refused{wait} if nobody answers)"
        return _lines(state, "question", (Span(f"? May the agent use {one_line(what)}", "ask"), Span(after, "dim")))
    lines: list[tuple[Span, ...]] = []
    for question in data.questions:
        lines.append((Span(f"? {one_line(question.question, 400)}", "ask"),))
        for number, option in enumerate(question.options, 1):
            about = f" — {one_line(option.description)}" if option.description else ""
            default = f"  ← taken{wait} if nobody answers" if number == 1 else ""
            lines.append((Span(f"  {number}. {one_line(option.label)}"), Span(f"{about}{default}", "dim")))
    return _lines(state, "question", *lines)


def _question_answered(state: Transcript, data: facts.QuestionAnswered) -> Rendered:
    given = "; ".join(", ".join(one_line(label) for label in answer) for answer in data.answers) or "no answer"
    by = {"default": "the default: nobody answered in time", "policy": "by the session's policy"}.get(
        data.answered_by, f"answered by {data.user}" if data.user else "answered"
    )
    state = msgspec.structs.replace(
        state, questions={key: value for key, value in state.questions.items() if key != data.question_id}
    )
    return _lines(state, "question", (Span(f"→ {given}", "strong"), Span(f"  ({by})", "dim")))


def _question_resolved(state: Transcript, data: agent.QuestionResolved) -> Rendered:
    if data.question_id not in state.questions:
        return state, ()
    rest = {key: value for key, value in state.questions.items() if key != data.question_id}
    state = msgspec.structs.replace(state, questions=rest)
    return _lines(state, "question", (Span(f"→ no longer asked ({data.outcome})", "dim"),))


def _todo_updated(state: Transcript, data: agent.TodoUpdated) -> Rendered:
    marks = {"completed": "☑", "in_progress": "▸", "cancelled": "☒"}
    lines = ((Span(f"{marks.get(item.status, '☐')} {one_line(item.content)}", "dim"),) for item in data.todos)
    return _lines(state, "todos", *lines)


def _git_changed(state: Transcript, data: agent.GitChanged) -> Rendered:
    letters = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R"}
    lines = (
        (
            Span(f"{letters[file.status]} {one_line(file.path)}  "),
            Span(f"+{file.additions}", "added"),
            Span(" "),
            Span(f"−{file.deletions}", "removed"),
        )
        for file in data.files
    )
    return _lines(state, "files", *lines)


def _turn_ended(state: Transcript, data: agent.TurnEnded) -> Rendered:
    figures = [seconds(data.duration_ms)]
    if data.first_token_ms is not None:
        figures.append(f"first token after {seconds(data.first_token_ms)}")
    figures.append(f"{data.tokens.input + data.tokens.cache_read} tokens in, {data.tokens.output} out")
    figures.append(dollars(data.cost))
    numbers = Span(f"  {' · '.join(figures)}", "dim")
    state = msgspec.structs.replace(state, **_TURN_OVER)
    match data.status:
        case "completed":
            return _lines(state, "end", (Span("✓ completed", "good"), numbers))
        case "interrupted":
            return _lines(state, "end", (Span("■ interrupted", "bad"), numbers))
        case "failed":
            words = f": {one_line(data.error.message, 400)}" if data.error else ""
            return _lines(state, "end", (Span(f"✗ failed{words}", "bad"), numbers))


def _turn_interrupted(state: Transcript, data: facts.TurnInterrupted) -> Rendered:
    state = msgspec.structs.replace(state, **_TURN_OVER)
    return _lines(state, "end", (Span(f"■ interrupted: {one_line(data.detail, 400)}", "bad"),))


def _session_requested(state: Transcript, data: facts.SessionRequested) -> Rendered:
    state = msgspec.structs.replace(
        state, question_timeout_s=data.policy.question_timeout_s, permissions=data.policy.permissions
    )
    where = f"{one_line(data.repo)}{f' at {data.branch}' if data.branch else ''}" if data.repo else "an empty workspace"
    return _lines(state, "head", (Span(f"{where} · {data.model}", "dim"),))


def _prompt_accepted(state: Transcript, data: facts.PromptAccepted) -> Rendered:
    lines = printable(data.content).rstrip("\n").split("\n")
    return _lines(state, "prompt", *((Span(f"> {line}", "prompt"),) for line in lines))


def _session_failed(state: Transcript, data: facts.SessionFailed) -> Rendered:
    lines = printable(data.detail).rstrip("\n").split("\n")
    return _lines(
        state,
        "end",
        *((Span(f"{'✗ the session failed: ' if n == 0 else '  '}{line}", "bad"),) for n, line in enumerate(lines)),
    )


def _session_terminated(state: Transcript, data: facts.SessionTerminated) -> Rendered:
    return _lines(state, "end", (Span("■ the session was ended", "dim"),))


def _sandbox_requested(state: Transcript, data: facts.SandboxRequested) -> Rendered:
    words = {
        "created": "The sandbox is being made …",
        "prompt": "The sandbox is being brought back …",
        "recovery": "The sandbox is being replaced …",
    }
    return _aside(state, words[data.reason])


def _sandbox_failed(state: Transcript, data: sandbox.SandboxFailed) -> Rendered:
    return _aside(state, f"The sandbox could not be made: {one_line(data.detail, 400)}", "bad")


def _sandbox_lost(state: Transcript, data: sandbox.SandboxLost) -> Rendered:
    return _aside(state, f"The sandbox is gone: {one_line(data.detail, 400)}", "bad")


def _sandbox_hibernated(state: Transcript, data: sandbox.SandboxHibernated) -> Rendered:
    return _aside(state, f"The sandbox was put to rest ({one_line(data.reason)}); a prompt brings it back.")


def _runner_ready(state: Transcript, data: agent.RunnerReady) -> Rendered:
    return _aside(state, f"The agent is ready: OpenCode {data.opencode_version}, after {seconds(data.boot_ms)}.")


def _opencode_restarted(state: Transcript, data: agent.OpencodeRestarted) -> Rendered:
    return _aside(state, f"OpenCode was started again: {one_line(data.detail)}")


def _status_changed(state: Transcript, data: agent.StatusChanged) -> Rendered:
    if data.status != "retrying":
        return state, ()
    attempt = f" (try {data.attempt + 1})" if data.attempt is not None else ""
    return _aside(state, f"The model's provider did not answer, trying again{attempt}: {one_line(data.message)}")


_RENDERERS: dict[type[Data], Callable[[Transcript, Any], Rendered]] = {
    facts.SessionRequested: _session_requested,
    facts.PromptAccepted: _prompt_accepted,
    facts.QuestionAnswered: _question_answered,
    facts.TurnInterrupted: _turn_interrupted,
    facts.SessionFailed: _session_failed,
    facts.SessionTerminated: _session_terminated,
    facts.SandboxRequested: _sandbox_requested,
    agent.RunnerReady: _runner_ready,
    agent.MessageCreated: _message_created,
    agent.TextCompleted: _text_completed,
    agent.ToolUpdated: _tool_updated,
    agent.QuestionAsked: _question_asked,
    agent.QuestionResolved: _question_resolved,
    agent.TodoUpdated: _todo_updated,
    agent.GitChanged: _git_changed,
    agent.TurnEnded: _turn_ended,
    agent.OpencodeRestarted: _opencode_restarted,
    agent.StatusChanged: _status_changed,
    sandbox.SandboxFailed: _sandbox_failed,
    sandbox.SandboxLost: _sandbox_lost,
    sandbox.SandboxHibernated: _sandbox_hibernated,
}
