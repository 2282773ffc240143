"""What a transcript is made of, before it meets a terminal or a file."""

import re
from typing import Literal

import msgspec

Style = Literal["text", "reasoning", "prompt", "dim", "strong", "good", "bad", "ask", "added", "removed", "hunk"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Everything by which a text could command a terminal or hide what it says; newline and tab are left."""


class Span(msgspec.Struct, frozen=True):
    """A run of text in one style."""

    text: str
    style: Style = "text"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Something to write next."""

    spans: tuple[Span, ...]
    key: str | None = None
    """A whole line; where a terminal can, it takes the place of the line of the same key just above it."""
    aside: bool = False
    """News of the platform rather than of the conversation: not part of the transcript."""


def printable(text: str) -> str:
    """Text of an agent or a tool, with what a terminal would obey instead of show made visible."""
    return _CONTROL.sub("�", text.replace("\r", ""))


def one_line(text: str, longest: int = 120) -> str:
    """A text on one line of at most `longest` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def seconds(milliseconds: int) -> str:
    """A duration as people say it: `240 ms`, `3.2 s`, `2 min 5 s`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {rest} s"


def dollars(cost: float) -> str:
    """A cost in US dollars, fine enough for one step of a model."""
    return f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"
