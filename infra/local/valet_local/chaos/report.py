"""What a run has to say, in figures. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import cast

import msgspec

from valet_local.bench.report import Machine
from valet_local.bench.statistics import percentile
from valet_local.chaos import limits, plan
from valet_local.chaos.check_prompts import text, turn_ends
from valet_local.chaos.faults import part_of
from valet_local.chaos.plan import Schedule
from valet_local.chaos.records import FaultKind, FaultRecord, History, Violation

TARGETS: dict[str, float] = {
    **dict.fromkeys((*plan.LINKED, *plan.INSIDE), limits.SERVICE_TARGET),
    "nats": limits.SERVER_TARGET,
    "postgres": limits.SERVER_TARGET,
    "runner": limits.SANDBOX_TARGET,
    "opencode": limits.SANDBOX_TARGET,
}
"""Part → seconds within which it is to work again after a kill."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a part worked again. Seconds."""

    part: str
    kind: FaultKind
    faults: int
    """Carried out."""
    measured: int
    """Of which no other fault fell into: the figures are of these."""
    p50: float | None
    p99: float | None
    worst: float | None
    target: float | None
    """Of a kill."""
    late: int
    """How many of the measured ones took longer than the target."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, counted."""

    kills: int
    pauses: int
    cuts: int
    """Of connections, frozen ones included."""
    prompts: int
    """Accepted."""
    turns: dict[str, int]
    """How they ended → how many."""
    errors: dict[str, int]
    """Of turns that failed: the error's first words → how many."""
    acts: dict[str, dict[str, int]]
    """Kind → the status of the answer → how many."""
    events: int
    """In the log at the end; deltas of completed messages are purged by then."""
    deltas: int
    """Pieces of text that streamed."""
    clients: int
    reconnects: int
    """How often a client came back."""
    deliveries: int
    """Events that clients got."""
    terminal_bytes: int = 0
    """That came out of terminals, over so many connections:"""
    terminal_connections: int = 0
    notes: int = 0
    """Memories and tasks that agents wrote."""
    children: int = 0
    """Sessions that agents spawned."""


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    seed: int
    seconds: float
    """Of faults; the end of the work and the checks come after."""
    sessions: int
    took: float
    machine: Machine
    figures: Figures
    recoveries: list[Recovery]
    violations: list[Violation]
    faults: list[FaultRecord]


def make(
    planned: Schedule, history: History, violations: list[Violation], *, machine: Machine, took: float
) -> ChaosReport:
    """The report of a run."""
    return ChaosReport(
        seed=planned.seed,
        seconds=planned.seconds,
        sessions=planned.sessions,
        took=took,
        machine=machine,
        figures=figures(history),
        recoveries=recoveries(history.faults),
        violations=violations,
        faults=sorted(history.faults, key=lambda fault: fault.number),
    )


def figures(history: History) -> Figures:
    """What happened, counted."""
    done = [fault for fault in history.faults if not fault.missed]
    acts: dict[str, Counter[str]] = {}
    for act in history.acts:
        acts.setdefault(act.kind, Counter())[str(act.status or "no answer")] += 1
    received = [event for client in history.clients for event in client.received]
    return Figures(
        kills=sum(fault.kind == "kill" for fault in done),
        pauses=sum(fault.kind == "pause" for fault in done),
        cuts=sum(fault.kind in ("cut", "freeze") for fault in done),
        prompts=sum(event.type == "fact.prompt_accepted" for event in history.stream),
        turns=dict(Counter(turn_ends(history.stream).values())),
        errors=dict(Counter(errors(history))),
        acts={kind: dict(counted) for kind, counted in sorted(acts.items())},
        events=len(history.stream),
        deltas=len(history.tapped),
        clients=len(history.clients),
        reconnects=sum(max(0, client.connections - 1) for client in history.clients),
        deliveries=len(received),
        terminal_bytes=sum(len(one.text) for record in history.terminals for one in record.connections),
        terminal_connections=sum(len(record.connections) for record in history.terminals),
        notes=len(history.memories) + len(history.tasks),
        children=sum(event.type == "fact.child_requested" for event in history.stream),
    )


def errors(history: History) -> Iterator[str]:
    """Why turns failed."""
    for event in history.stream:
        if event.type == "agent.turn_ended" and text(event, "status") == "failed":
            error = cast(dict[str, object], event.data.get("error") or {})
            yield f"{error.get('name')}: {str(error.get('message', ''))[:120]}".replace("\n", " ")


def recoveries(faults: list[FaultRecord]) -> list[Recovery]:
    """Of every part and kind of fault, in the order of the schedule's deck."""
    found: list[Recovery] = []
    kinds: list[tuple[str, FaultKind]] = [
        (part, kind)
        for kind in ("kill", "pause", "cut", "freeze")
        for part in (*plan.PROCESSES, *plan.SANDBOX, *plan.INSIDE)
    ]
    for part, kind in kinds:
        these = [f for f in faults if f.kind == kind and part_of(f) == part and not f.missed]
        if not these:
            continue
        took = sorted(fault.recovered for fault in these if fault.recovered is not None and fault.alone)
        target = TARGETS[part] if kind == "kill" else None
        found.append(
            Recovery(
                part=part,
                kind=kind,
                faults=len(these),
                measured=len(took),
                p50=percentile(took, 0.5) if took else None,
                p99=percentile(took, 0.99) if took else None,
                worst=took[-1] if took else None,
                target=target,
                late=sum(target is not None and seconds > target for seconds in took),
            )
        )
    return found
