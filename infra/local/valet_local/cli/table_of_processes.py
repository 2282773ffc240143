"""Processes of a sandbox as a table. Pure."""

import shlex
from collections.abc import Iterable

from valet_protocol.codec import from_rfc3339
from valet_protocol.events.machine import ProcessInfo

from valet_local.cli.pieces import Piece, one_line
from valet_local.cli.tables import Cell, age, table


def processes(found: Iterable[ProcessInfo], now_ms: int) -> tuple[Piece, ...]:
    """Those that run first, each in the order of their start."""
    head = tuple(Cell(name, "dim") for name in ("ID", "STATUS", "PID", "AGE", "OUTPUT", "COMMAND"))
    ordered = sorted(found, key=lambda process: (process.status != "running", process.created_at))
    return table((head, *(_row(process, now_ms) for process in ordered)))


def _row(process: ProcessInfo, now_ms: int) -> tuple[Cell, ...]:
    ended = process.signal or process.exit_code
    good = process.status == "running" or ended == 0
    status = process.status if process.status == "running" else f"exited {ended}"
    return (
        Cell(process.id),
        Cell(status, "good" if good else "bad"),
        Cell(str(process.pid)),
        Cell(age(now_ms - from_rfc3339(process.created_at))),
        Cell(f"{process.output_bytes:,} B"),
        Cell(one_line(shlex.join([process.command, *process.args]), 80)),
    )
