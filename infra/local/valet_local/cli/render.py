"""A session's events as a transcript: (state, entry) → (state, pieces). Pure.

Text is written as its chunks arrive. A chunk's offset says where it belongs: what is already written is not
written again, and after a gap (a follower that begins in the middle) the part waits for its completed text.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from valet_protocol.codec import decode_data
from valet_protocol.errors import BadEvent
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data, Envelope

from valet_local.cli import render_asking, render_news, render_prompts, render_results, render_shown, render_tools
from valet_local.cli.pieces import Piece, Span, dollars, one_line, seconds
from valet_local.cli.transcript import TURN_OVER, Rendered, Transcript, lines, text
from valet_local.client.follow import Entry


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
        state, more = _tool_lines(state, part_id, _call_lines(state, call))
        pieces += more
    return state, pieces


def _delta(state: Transcript, data: Delta, type: str) -> Rendered:
    have = state.written.get(data.part_id, 0)
    if data.part_id in state.finished or data.message_id in state.helpers or data.offset > have:
        return state, ()
    fresh = data.text[have - data.offset :]
    state = msgspec.structs.replace(state, written={**state.written, data.part_id: have + len(fresh)})
    return text(state, data.part_id, fresh, "reasoning" if type == "delta.reasoning" else "text")


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
        return lines(state, "tools", (render_shown.BELOW, Span(one_line(data.text), "dim")))
    state, pieces = text(state, data.part_id, data.text[have:], "reasoning" if data.kind == "reasoning" else "text")
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
    shown = _call_lines(state, data)
    if data.part_id in calls and (not state.live or (before and _call_lines(state, before) == shown)):
        return state, ()
    return _tool_lines(state, data.part_id, shown)


def _call_lines(state: Transcript, call: agent.ToolUpdated) -> list[tuple[Span, ...]]:
    """A sub-agent's call stands below the main one's, like its text."""
    shown = render_tools.lines(call)
    return [(render_shown.BELOW, *line) for line in shown] if call.message_id in state.helpers else shown


def _tool_lines(state: Transcript, part_id: str, shown: list[tuple[Span, ...]]) -> Rendered:
    state, pieces = lines(state, "tools", shown[0], key=part_id)
    state, more = lines(state, "tools", *shown[1:])
    return state, pieces + more


def _todo_updated(state: Transcript, data: agent.TodoUpdated) -> Rendered:
    marks = {"completed": "☑", "in_progress": "▸", "cancelled": "☒"}
    rows = ((Span(f"{marks.get(item.status, '☐')} {one_line(item.content)}", "dim"),) for item in data.todos)
    return lines(state, "todos", *rows)


def _git_changed(state: Transcript, data: agent.GitChanged) -> Rendered:
    letters = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R"}
    rows = (
        (
            Span(f"{letters[file.status]} {one_line(file.path)}  "),
            Span(f"+{file.additions}", "added"),
            Span(" "),
            Span(f"−{file.deletions}", "removed"),
        )
        for file in data.files
    )
    return lines(state, "files", *rows)


def _turn_ended(state: Transcript, data: agent.TurnEnded) -> Rendered:
    figures = [seconds(data.duration_ms)]
    if data.first_token_ms is not None:
        figures.append(f"first token after {seconds(data.first_token_ms)}")
    figures.append(f"{data.tokens.input + data.tokens.cache_read} tokens in, {data.tokens.output} out")
    figures.append(dollars(data.cost))
    numbers = Span(f"  {' · '.join(figures)}", "dim")
    state = msgspec.structs.replace(state, **TURN_OVER)
    match data.status:
        case "completed":
            return lines(state, "end", (Span("✓ completed", "good"), numbers))
        case "interrupted":
            return lines(state, "end", (Span("■ interrupted", "bad"), numbers))
        case "failed":
            words = f": {one_line(data.error.message, 400)}" if data.error else ""
            return lines(state, "end", (Span(f"✗ failed{words}", "bad"), numbers))


def _event_imported(state: Transcript, data: facts.EventImported) -> Rendered:
    """What happened in the source, as it was shown there; what happened to its sandbox is no news here."""
    envelope = Envelope(
        specversion="1.0",
        id="",
        source="",
        type=data.type,
        subject="",
        time=data.time,
        dataversion=data.version,
        data=msgspec.Raw(msgspec.json.encode(data.data)),
    )
    try:
        inner = decode_data(envelope)
    except BadEvent:
        return state, ()  # a later version may know it
    renderer = _RENDERERS.get(type(inner))
    if renderer is None or isinstance(inner, facts.EventImported):
        return state, ()
    state, pieces = renderer(state, inner)
    return state, tuple(piece for piece in pieces if not piece.aside)


def _turn_interrupted(state: Transcript, data: facts.TurnInterrupted) -> Rendered:
    state = msgspec.structs.replace(state, **TURN_OVER)
    return lines(state, "end", (Span(f"■ interrupted: {one_line(data.detail, 400)}", "bad"),))


_RENDERERS: dict[type[Data], Callable[[Transcript, Any], Rendered]] = {
    **render_prompts.RENDERERS,
    **render_asking.RENDERERS,
    **render_results.RENDERERS,
    **render_news.RENDERERS,
    **render_shown.RENDERERS,
    facts.TurnInterrupted: _turn_interrupted,
    facts.EventImported: _event_imported,
    agent.MessageCreated: _message_created,
    agent.TextCompleted: _text_completed,
    agent.ToolUpdated: _tool_updated,
    agent.TodoUpdated: _todo_updated,
    agent.GitChanged: _git_changed,
    agent.TurnEnded: _turn_ended,
}
