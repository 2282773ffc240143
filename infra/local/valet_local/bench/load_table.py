"""The report of a load run as Markdown: for the terminal and for docs/performance.md. Pure.

python -m valet_local.bench.load_table REPORT.json [PAGE]       or into that page
"""

import sys
from pathlib import Path

import msgspec

from valet_local.bench import marked
from valet_local.bench.load import LoadReport, Step

MARK = "figures of valet bench load"
"""Of the place in docs/performance.md."""


def markdown(report: LoadReport) -> str:
    """What it was measured on, latency and memory by size, and who uses the processors."""
    machine, load = report.machine, report.load
    where = (
        f"{machine.cpus} × {machine.cpu}, {machine.memory_mb >> 10} GB, {machine.system}, Python {machine.python}, "
        f"NATS {machine.nats}; load average {machine.load_before:.1f} when it began. {load.rate:g} deltas a second "
        f"from each session that streams; {load.seconds:g} s at the largest size."
    )
    names = list(report.steps[-1].cpu)
    lines = [
        where,
        "",
        "| sessions: idle + streaming | event → client, p50 | p99 | longest | floor, p50 | p99 | events/s to clients"
        " | control plane | per session |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| 0 | | | | | | | {report.empty_mb:,.0f} MB | |",
        *map(_size, report.steps),
        "",
        f"| sessions | {' | '.join([f'{name}, CPU' for name in names] + [f'{name}, MB' for name in names])} |",
        f"|---{'|---' * (2 * len(names))}|",
        *(_usage(step, names) for step in report.steps),
    ]
    return "\n".join(lines)


def _size(step: Step) -> str:
    memory = sum(step.memory_mb.values())
    return (
        f"| {step.idle:,} + {step.streaming:,} | {step.delay.p50:.2f} ms | {step.delay.p99:.2f} ms "
        f"| {step.delay.worst:.0f} ms | {step.floor.p50:.2f} ms | {step.floor.p99:.2f} ms | {step.events:,.0f} "
        f"| {memory:,.0f} MB | {step.session_kb:,.0f} kB |"
    )


def _usage(step: Step, names: list[str]) -> str:
    cells = [f"{step.cpu.get(name, 0.0):.0f} %" for name in names]
    cells += [f"{step.memory_mb.get(name, 0.0):.0f}" for name in names]
    return f"| {step.idle + step.streaming:,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    _report = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LoadReport)
    if len(sys.argv) > 2:
        marked.renew(Path(sys.argv[2]), MARK, markdown(_report))
    else:
        print(markdown(_report))
