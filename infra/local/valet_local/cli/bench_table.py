"""The report of `valet bench` for people. Pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from valet_local.bench.report import Line, Report, amount

_VERDICT = {True: ("met", "green"), False: ("missed", "red"), None: ("", "dim")}

WIDTH = 120
"""Columns where there is no terminal to ask."""


def rendered(report: Report) -> RenderableType:
    """A table of the figures, the reasons of missed aims, and what it was measured on."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "figure", "measured", "floor", "× floor", "aim", ""):
        numeric = name in ("measured", "floor", "× floor")
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for item in report.lines:
        table.add_row(*_cells(item))
    return Group(table, *_below(report))


def _cells(item: Line) -> tuple[Text, ...]:
    verdict, style = _VERDICT[item.met]
    return (
        Text(item.bench),
        Text(item.name),
        Text(amount(item.value, item.unit), "bold"),
        Text(amount(item.floor, item.unit), "dim"),
        Text(f"{item.ratio:.2f}"),
        Text(item.aim),
        Text(verdict, style),
    )


def _below(report: Report) -> list[RenderableType]:
    texts: list[RenderableType] = [Text("")]
    floors = {(item.bench, item.floor_name) for item in report.lines}
    texts += [Text(f"({bench}) floor: {name}", "dim") for bench, name in sorted(floors)]
    texts += [Text(f"({item.bench}) {item.name}: {item.note}", "dim") for item in report.lines if item.note]
    for item in report.lines:
        if item.reason:
            texts.append(Text(f"({item.bench}) missed: {item.reason}", "yellow"))
    texts += [Text(f"({failure.bench}) not measured: {failure.reason}", "red") for failure in report.failures]
    machine = report.machine
    texts.append(
        Text(
            f"{machine.cpus} × {machine.cpu}, {machine.memory_mb >> 10} GB, {machine.system}, Python {machine.python}, "
            f"NATS {machine.nats}, OpenCode {machine.opencode}; load {machine.load_before:.1f} → "
            f"{machine.load_after:.1f}; {report.seconds:.0f} s" + (", quick" if report.quick else ""),
            "dim",
        )
    )
    if machine.load_before > machine.cpus / 2:
        texts.append(
            Text("This machine was busy when the run began: the figures are worse than they need be.", "yellow")
        )
    return texts
