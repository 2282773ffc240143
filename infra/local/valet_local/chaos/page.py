"""A report as text: what the command shows, and the tables of docs/reliability.md. Pure.

python -m valet_local.chaos.page REPORT.json [PAGE]       the tables in Markdown, or into that page
"""

import sys
from pathlib import Path

import msgspec

from valet_local.bench import marked
from valet_local.chaos.report import ChaosReport, Recovery

MARK = "figures of valet chaos"
"""Of the place in docs/reliability.md."""


def summary(made: ChaosReport) -> str:
    """The report for a person at a terminal."""
    lines = ["", *recovery_table(made.recoveries), "", *counted(made), ""]
    for violation in made.violations:
        place = f" at {violation.seq}" if violation.seq is not None else ""
        session = f"session {violation.session_id}{place}: " if violation.session_id else ""
        lines.append(f"VIOLATED  {violation.rule}: {session}{violation.what}")
    lines.append(f"{len(made.violations)} violations" if made.violations else "Every promise was kept.")
    return "\n".join(lines)


def recovery_table(recoveries: list[Recovery]) -> list[str]:
    """Lines of a Markdown table."""
    rows = ["| part | fault | faults | measured | p50 | p99 | longest | target |", "|---|---|---|---|---|---|---|---|"]
    for one in recoveries:
        target = "" if one.target is None else f"≤ {one.target:g} s"
        if one.target is not None and one.measured:
            target += ", **missed**" if one.late else ", met"
        figures = " | ".join("" if value is None else f"{value:.2f} s" for value in (one.p50, one.p99, one.worst))
        rows.append(f"| {one.part} | {one.kind} | {one.faults} | {one.measured} | {figures} | {target} |")
    return rows


def counted(made: ChaosReport) -> list[str]:
    """Lines of a Markdown table."""
    figures = made.figures
    turns = ", ".join(f"{count:,} {status}" for status, count in sorted(figures.turns.items()))
    rows: list[tuple[str, str]] = [
        ("seed, length, sessions", f"{made.seed}, {made.seconds / 60:g} min of faults, {made.sessions}"),
        ("processes killed", f"{figures.kills:,}"),
        ("processes stopped for 2 to 10 s", f"{figures.pauses:,}"),
        ("connections cut or frozen", f"{figures.cuts:,}"),
        ("prompts accepted", f"{figures.prompts:,}"),
        ("turns", turns),
        ("failed for", "; ".join(f"{error} ({count})" for error, count in figures.errors.items()) or "nothing"),
        ("events in the log", f"{figures.events:,}"),
        ("pieces of text streamed", f"{figures.deltas:,}"),
        ("events delivered to clients", f"{figures.deliveries:,} to {figures.clients}"),
        ("times a client came back", f"{figures.reconnects:,}"),
        ("bytes of terminals", f"{figures.terminal_bytes:,} over {figures.terminal_connections:,} connections"),
        ("memories and tasks written by agents", f"{figures.notes:,}"),
        ("child sessions spawned", f"{figures.children:,}"),
        ("violations", f"{len(made.violations):,}"),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def acts_table(made: ChaosReport) -> list[str]:
    """What people did and how it was answered, as lines of a Markdown table."""
    rows = ["| action | answers (HTTP status × times) |", "|---|---|"]
    for kind, answers in made.figures.acts.items():
        rows.append(f"| {kind} | {', '.join(f'{status} × {count}' for status, count in sorted(answers.items()))} |")
    return rows


def markdown(made: ChaosReport) -> str:
    """All tables of docs/reliability.md."""
    machine = made.machine
    where = (
        f"{machine.cpus} × {machine.cpu}, {machine.memory_mb >> 10} GB, {machine.system}, Python {machine.python}, "
        f"NATS {machine.nats}, OpenCode {machine.opencode}; load average {machine.load_before:.1f} when it began, "
        f"{machine.load_after:.1f} when it ended."
    )
    return "\n".join([where, "", *counted(made), "", *recovery_table(made.recoveries), "", *acts_table(made)])


if __name__ == "__main__":
    _made = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ChaosReport)
    if len(sys.argv) > 2:
        marked.renew(Path(sys.argv[2]), MARK, markdown(_made))
    else:
        print(markdown(_made))
