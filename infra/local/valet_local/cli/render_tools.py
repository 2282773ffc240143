"""A tool call as lines: one that says what is done and how far it is, then the end of a command's output.
Pure.
"""

from valet_protocol.events.agent import ToolUpdated

from valet_local.cli.pieces import Span, Style, one_line, printable, seconds

_WORKSPACE = "/workspace/"
"""Where every sandbox has its working copy; left out of paths, because everything lies there."""

_TELLING = ("filePath", "command", "pattern", "url", "query", "description", "path", "name")
"""Inputs that say most about a call, the first one present is shown."""

_MARKS: dict[str, tuple[str, Style]] = {
    "pending": ("·", "dim"),
    "running": ("▸", "text"),
    "completed": ("✓", "good"),
    "error": ("✗", "bad"),
}

OUTPUT_LINES = 6
"""How much of a command's output is shown: a test run's verdict fits, the transcript stays readable."""


def lines(call: ToolUpdated) -> list[tuple[Span, ...]]:
    """At least one line; more for the output of a finished command and for an error."""
    mark, style = _MARKS[call.status]
    what = _what(call)
    took = ""
    if call.status in ("completed", "error") and call.started_ms is not None and call.ended_ms is not None:
        took = f"  {seconds(max(0, call.ended_ms - call.started_ms))}"
    head = (
        Span(f"{mark} {one_line(call.tool)}", style),
        Span(f"  {what}" if what else ""),
        Span(f"  {call.status}{took}", "dim"),
    )
    if call.status == "error":
        return [head, *_block(call.error or "", "bad")]
    if call.status == "completed" and call.tool == "bash":
        return [head, *_block(call.output or "", "dim")]
    return [head]


def _what(call: ToolUpdated) -> str:
    for name in _TELLING:
        value = call.input.get(name)
        if isinstance(value, str) and value:
            return one_line(value.removeprefix(_WORKSPACE), 80)
    return one_line(call.title or "", 80)


def _block(text: str, style: Style) -> list[tuple[Span, ...]]:
    found = [line for line in printable(text).split("\n") if line.strip()]
    shown = [(Span(f"    {line[:200]}", style),) for line in found[-OUTPUT_LINES:]]
    if len(found) > OUTPUT_LINES:
        shown.insert(0, (Span(f"    … {len(found) - OUTPUT_LINES} more lines", "dim"),))
    return shown
