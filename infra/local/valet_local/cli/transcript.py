"""Where a transcript stands, and how lines and running text are added to it. Pure."""

from typing import Any

import msgspec
from valet_protocol.events import agent

from valet_local.cli.pieces import Piece, Span, Style, printable


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
    commands: dict[str, str] = {}
    """Commands that have no result yet: what they do, by request."""


TURN_OVER: dict[str, Any] = {
    "finished": frozenset(),
    "written": {},
    "helpers": frozenset(),
    "questions": {},
    "calls": {},
}
"""What is forgotten when a turn ends."""

Rendered = tuple[Transcript, tuple[Piece, ...]]


def lines(
    state: Transcript, block: str, *rows: tuple[Span, ...], key: str | None = None, beside: bool = False
) -> Rendered:
    """Whole lines; a blank one before them where the kind of what is written changes."""
    pieces: list[Piece] = []
    if not beside:
        if state.in_line:
            pieces.append(Piece(spans=(Span("\n"),)))
        if state.block and state.block != block:
            pieces.append(Piece(spans=(Span("\n"),)))
        state = msgspec.structs.replace(state, block=block, in_line=False)
    pieces += (Piece(spans=(*line, Span("\n")), key=key, aside=beside) for line in rows)
    return state, tuple(pieces)


def aside(state: Transcript, words: str, style: Style = "dim") -> Rendered:
    return lines(state, "aside", (Span(words, style),), beside=True)


def text(state: Transcript, part_id: str, words: str, style: Style) -> Rendered:
    """A piece of running text."""
    if not words:
        return state, ()
    pieces: list[Piece] = []
    if state.block != part_id:
        if state.in_line:
            pieces.append(Piece(spans=(Span("\n"),)))
        if state.block:
            pieces.append(Piece(spans=(Span("\n"),)))
    pieces.append(Piece(spans=(Span(printable(words), style),)))
    return msgspec.structs.replace(state, block=part_id, in_line=not words.endswith("\n")), tuple(pieces)
