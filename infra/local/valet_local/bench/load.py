"""Many sessions at once: how late events are, and what the control plane needs for each session.

Measured: a platform without sandbox controller and portal, which have no part in it once a session runs; simulated
runners that speak the real protocol (`load_runners`), of which some stream; one client with a bare socket for each
session that streams (`watchers`). A delta's delay is from the moment its text was made, just before it was handed to
the outbox, to the client's read; of events that arrive joined the oldest stands for all. Memory is resident memory,
shared pages once; its figure for a session is the growth since the size before, by the sessions added. Processor time
is that of each service during the step.

Floor: deltas at the same rate over core NATS through one process to one bare socket (as in `streaming`).
"""

import time
from collections.abc import Callable

import msgspec

from valet_local.bench import child, limits, load_runners, machine, stage, usage, watchers, wire
from valet_local.bench.child import Child, Pace
from valet_local.bench.errors import BenchFailed
from valet_local.bench.pipe import Setup as PipeSetup
from valet_local.bench.report import Machine
from valet_local.bench.stage import Stage
from valet_local.bench.statistics import Spread, spread

SERVICES = ("session-ledger", "event-bus", "api")
"""Those that take part."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How much."""

    idle: int
    """Sessions whose runner waits."""
    streaming: int
    """Sessions in which a turn runs, always."""
    seconds: float
    """Of the largest step."""
    rate: float = 20.0
    """Deltas a second of a session that streams: a fast model's tokens, paced by the runner."""
    message_seconds: float = 8.0
    """How long a message streams; a turn is two of them and a tool call."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One size."""

    idle: int
    streaming: int
    seconds: float
    delay: Spread
    """Milliseconds."""
    floor: Spread
    """The same rate without Valet, milliseconds."""
    events: float
    """That clients got, a second."""
    memory_mb: dict[str, float]
    """Of each server and service."""
    session_kb: float
    """Growth of all of them since the size before, for each session that was added."""
    cpu: dict[str, float]
    """Percent of one processor."""
    ready_seconds: float
    """From the request for its new sessions until all of their runners had attached."""


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    machine: Machine
    load: Load
    empty_mb: float
    """The control plane without a session."""
    steps: list[Step]


def run(load: Load, progress: Callable[[str], None]) -> LoadReport:
    """Step by step, on one platform. Raises `BenchFailed` and `LocalError`s."""
    load_before = machine.load()
    progress("starting a platform without sandboxes")
    with stage.folder() as folder, stage.platform(folder / "d", services=SERVICES) as running:
        time.sleep(limits.SETTLE)  # what a start has left in memory and to do
        empty = usage.used(running.places)
        setup = load_runners.Setup(
            url=running.endpoint.url,
            token=running.endpoint.token,
            nats_url=running.nats_url,
            creds=str(running.creds),
            account_seed=(running.places.keys / "account.seed").read_text(),
            rate=load.rate,
            message_seconds=load.message_seconds,
        )
        steps: list[Step] = []
        streaming: list[str] = []
        idle = 0
        with Child("valet_local.bench.load_runners", setup) as runners:
            for size in sizes(load):
                progress(f"{size.idle:,} idle and {size.streaming:,} streaming sessions for {size.seconds:g} s")
                floor = _floor(running, load.rate * size.streaming, min(limits.LOAD_FLOOR, size.seconds))
                order = load_runners.Add(idle=size.idle - idle, streaming=size.streaming - len(streaming))
                added = runners.ask(order, load_runners.Added, limits.LOAD_ADD)
                streaming += added.streaming
                idle = size.idle
                steps.append(_step(running, size, streaming, floor, added.seconds))
    return LoadReport(
        machine=machine.describe(load_before),
        load=load,
        empty_mb=sum(one.memory_mb for one in empty.values()),
        steps=[
            msgspec.structs.replace(
                step, session_kb=_growth(step, before, sum(one.memory_mb for one in empty.values()))
            )
            for step, before in zip(steps, [None, *steps], strict=False)
        ],
    )


def _growth(step: Step, before: Step | None, empty_mb: float) -> float:
    """kB of memory for each session that the step has more than the one before it."""
    sessions, memory_mb = (
        (before.idle + before.streaming, sum(before.memory_mb.values())) if before is not None else (0, empty_mb)
    )
    return (sum(step.memory_mb.values()) - memory_mb) * 1024 / (step.idle + step.streaming - sessions)


def sizes(load: Load) -> list[Load]:
    """A hundredth, a tenth, and all; the smaller ones for a minute at most. Pure."""
    found: list[Load] = []
    for share in (0.01, 0.1, 1.0):
        idle, streaming = round(load.idle * share), max(1, round(load.streaming * share))
        seconds = load.seconds if share == 1.0 else min(limits.LOAD_SMALL_STEP, load.seconds)
        size = msgspec.structs.replace(load, idle=idle, streaming=streaming, seconds=seconds)
        if not found or (idle, streaming) != (found[-1].idle, found[-1].streaming):
            found.append(size)
    return found


def _step(running: Stage, size: Load, streaming: list[str], floor: Spread, ready: float) -> Step:
    host, port = wire.address(running.endpoint)
    greetings = [
        wire.request(running.endpoint, "GET", wire.follow_path(session_id, 0)).decode() for session_id in streaming
    ]
    setup = watchers.Setup(host=host, port=port, greeting="", count=len(greetings), greetings=greetings)
    with Child("valet_local.bench.watchers", setup) as clients:
        warm = watchers.Look(expected=0, patience=0.0, seconds=min(size.seconds, 2 * size.message_seconds))
        clients.ask(warm, watchers.Seen, limits.STEP)  # until all of them stream
        before, began = usage.used(running.places), time.monotonic()
        look = watchers.Look(expected=0, patience=0.0, seconds=size.seconds)
        seen = clients.ask(look, watchers.Seen, size.seconds + limits.STEP)
        after, took = usage.used(running.places), time.monotonic() - began
    if seen.delay is None or seen.connected < len(greetings):
        raise BenchFailed(f"{len(greetings) - seen.connected} of {len(greetings)} clients were cut, or got nothing")
    return Step(
        idle=size.idle,
        streaming=size.streaming,
        seconds=size.seconds,
        delay=seen.delay,
        floor=floor,
        events=seen.frames / size.seconds,
        memory_mb={name: one.memory_mb for name, one in after.items()},
        session_kb=0.0,
        cpu={name: 100 * (after[name].cpu_seconds - before[name].cpu_seconds) / took for name in after},
        ready_seconds=ready,
    )


def _floor(running: Stage, rate: float, seconds: float) -> Spread:
    creds = str(running.creds)
    with (
        Child(
            "valet_local.bench.pipe", PipeSetup(role="forwarder", nats_url=running.nats_url, creds=creds)
        ) as forwarder,
        Child(
            "valet_local.bench.pipe", PipeSetup(role="publisher", nats_url=running.nats_url, creds=creds)
        ) as publisher,
        wire.Stream(("127.0.0.1", forwarder.started.port), b"") as stream,
    ):
        stream.until(wire.SYNCED, limits.STEP)
        total = int(rate * seconds)
        publisher.say(Pace(rate=rate, seconds=seconds))
        pieces: list[wire.Piece] = []
        got = 0
        for piece in stream.pieces():
            pieces.append(piece)
            got += piece.data.count(b"\n\n")
            if got >= total:
                break
        publisher.hear(child.Paced)
    return spread(wire.delays_ms(pieces))
