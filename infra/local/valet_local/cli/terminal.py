"""Where pieces are written: colours and lines in place on a terminal, plain text into a pipe or a file."""

import io
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

from valet_local.cli.pieces import Piece, Span, Style

if TYPE_CHECKING:
    from rich.console import Console

_RICH: Mapping[Style, str] = {
    "text": "",
    "reasoning": "dim italic",
    "prompt": "bold cyan",
    "dim": "dim",
    "strong": "bold",
    "good": "green",
    "bad": "red",
    "ask": "bold yellow",
    "added": "green",
    "removed": "red",
    "hunk": "cyan",
}

_UP_AND_ERASE = "\x1b[1A\x1b[2K\r"


class Terminal:
    """The transcript on `out`, news of the platform on `err`."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = _Stream(out or sys.stdout)
        self._err = _Stream(err or sys.stderr)
        self._last_key: str | None = None

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write and flush."""
        for piece in pieces:
            self._leave_prompt()
            if piece.aside:
                self._aside(piece.spans)
                continue
            line = piece.key is not None
            if line and piece.key == self._last_key and self._out.console is not None:
                self._out.file.write(_UP_AND_ERASE)
            self._out.write(piece.spans, cut=line)
            self._last_key = piece.key
        self._out.file.flush()

    def line(self, text: str = "", style: Style = "text") -> None:
        """One line of the transcript."""
        self.write((Piece(spans=(Span(text, style), Span("\n"))),))

    def tell(self, text: str, style: Style = "dim") -> None:
        """One line that is not of the transcript."""
        self._aside((Span(text, style), Span("\n")))

    def ask(self, prompt: str) -> None:
        """A prompt behind which a person types."""
        self._aside((Span(prompt, "ask"),))

    def typed(self) -> None:
        """The person ended the line of the prompt."""
        self._err.in_line = False

    def raw(self, line: bytes) -> None:
        """A line of bytes to `out` as it is, flushed."""
        self.pass_on(line + b"\n")

    def pass_on(self, piece: bytes) -> None:
        """Bytes to `out` as they are, flushed."""
        self._out.file.buffer.write(piece)
        self._out.file.buffer.flush()

    @property
    def rich(self) -> "Console | None":
        """The console of `out` if that is a terminal."""
        return self._out.console

    def _leave_prompt(self) -> None:
        """What comes does not wait for the person: it goes below the prompt."""
        if self._err.in_line and self._err.console is not None:
            self._err.write((Span("\n"),))
            self._err.file.flush()

    def _aside(self, spans: tuple[Span, ...]) -> None:
        self._leave_prompt()
        if self._out.in_line and self._out.console is not None and self._err.console is not None:
            # Both are the same screen: do not write into the middle of a sentence.
            self._out.write((Span("\n"),))
            self._out.file.flush()
        self._last_key = None
        self._err.write(spans)
        self._err.file.flush()


class _Stream:
    """One of the two streams. `console` is None where there is no terminal."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.in_line = False
        self.console: Console | None = _console(file) if file.isatty() else None
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="replace")  # a terminal that cannot show ✓ shall show ?, not a stack trace

    def write(self, spans: tuple[Span, ...], *, cut: bool = False) -> None:
        text = "".join(span.text for span in spans)
        if not text:
            return
        self.in_line = not text.endswith("\n")
        if self.console is None:
            self.file.write(text)
            return
        from rich.text import Text

        line = Text.assemble(*((span.text, _RICH[span.style]) for span in spans), end="")
        if cut:  # a line that is to be replaced must not wrap: only its last row could be taken back
            line.rstrip()
            line.truncate(self.console.width - 1, overflow="ellipsis")
            line.append("\n")
        self.console.print(line, end="", soft_wrap=True)


def _console(file: TextIO) -> "Console | None":
    from rich.console import Console  # a pipe needs none of it, and it is slow to import

    console = Console(file=file, highlight=False, soft_wrap=True)
    return None if console.is_dumb_terminal else console
