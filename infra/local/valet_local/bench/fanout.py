"""(e) One session, a thousand clients.

Measured: a thousand bare sockets in one process (`watchers`), each connected through the public address; another
process (`crowd`) writes deltas of the session into the log at a rate that rises step by step. A step is sustained when
every client got every event, no client was cut, and the last arrived at most 5 % of the step (and 100 ms) after the
last was written. The figure is the deliveries a second of the highest sustained step (frames by the time from the
first write to the last arrival). A step that is not sustained is tried once more before that counts: one hiccup of a
busy machine is not the limit. A delivery's delay is from just before the event was written into the log to the
client's read; of events that came joined the oldest one's delay stands for all, so it is an upper bound. The first
step is light traffic: were there a fixed tick, it would show there.

Floor: one uvloop process that makes the same bytes at the same rates, joins what has gathered while it wrote as the
event bus does, and writes it to the same thousand clients: no log, no broker, no sessions.
"""

import msgspec

from valet_local.bench import crowd, limits, watchers, wire
from valet_local.bench.child import Child, Pace, Paced
from valet_local.bench.errors import BenchFailed
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale
from valet_local.bench.stage import Stage

BOUND = (
    "profiled, 95 % of the event bus is the write to each client's socket, which the floor does as well: the "
    "processors are shared with the writer, the broker and the thousand clients themselves"
)
"""As profiled with py-spy."""

_TOLD = (10, 300)
"""Rates whose delays are told besides those of the highest: light traffic, and what the aim amounts to."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one rate came to."""

    rate: int
    deliveries: float
    """A second."""
    p50: float
    p99: float
    """Milliseconds."""
    joined: float
    """Events in a piece, on average."""
    sustained: bool


def run(stage: Stage, scale: Scale) -> list[Figure]:
    """The floor first, then the platform. Raises `BenchFailed`."""
    floor = _floor(scale)
    session_id = stage.ready_session()
    real = _real(stage, session_id, scale)
    stage.end_session(session_id)
    top, top_floor = _highest(real), _highest(floor)
    name, under = f"deliveries to {scale.watchers:,} clients", "bare uvloop writer"
    return [
        Figure(
            bench="e",
            name=name,
            value=top.deliveries,
            unit="deliveries/s",
            floor=top_floor.deliveries,
            floor_name=under,
            aim=Aim(at_least=300_000),
            bound=BOUND,
            note=f"at {top.rate} events/s, {top.joined:.1f} joined in a write; floor at {top_floor.rate} events/s"
            + ("" if top.rate < scale.watch_rates[-1] else "; the highest rate that was tried"),
        ),
        *(
            Figure(
                bench="e",
                name=f"… p99 at {step.rate:,} events/s",
                value=step.p99,
                unit="ms",
                floor=beside.p99,
                floor_name=under,
                note=f"p50 {step.p50:.1f} ms, floor {beside.p50:.1f} ms; "
                f"{step.joined:.1f} and {beside.joined:.1f} joined",
            )
            for step, beside in zip(real, floor, strict=False)
            if step.rate in _TOLD or step is top
        ),
    ]


def _floor(scale: Scale) -> list[Step]:
    with Child("valet_local.bench.crowd", crowd.Setup(role="sockets", session_id="bench")) as server:
        place = ("127.0.0.1", server.started.port)
        with Child("valet_local.bench.watchers", _watching(place, b"", scale)) as clients:
            return _ramp(server, clients, scale)


def _real(stage: Stage, session_id: str, scale: Scale) -> list[Step]:
    setup = crowd.Setup(role="log", session_id=session_id, nats_url=stage.nats_url, creds=str(stage.creds))
    with Child("valet_local.bench.crowd", setup) as writer:
        after = stage.session(session_id).seq
        greeting = wire.request(stage.endpoint, "GET", wire.follow_path(session_id, after))
        with Child("valet_local.bench.watchers", _watching(wire.address(stage.endpoint), greeting, scale)) as clients:
            return _ramp(writer, clients, scale)


def _watching(place: tuple[str, int], greeting: bytes, scale: Scale) -> watchers.Setup:
    return watchers.Setup(host=place[0], port=place[1], greeting=greeting.decode(), count=scale.watchers)


def _ramp(writer: Child, clients: Child, scale: Scale) -> list[Step]:
    """Step by step until one is not sustained; that one is the last of the list."""
    steps: list[Step] = []
    for rate in scale.watch_rates:
        step = _attempt(rate, writer, clients, scale)
        if not step.sustained:
            step = _attempt(rate, writer, clients, scale)
        steps.append(step)
        if not step.sustained:
            break
    return steps


def _attempt(rate: int, writer: Child, clients: Child, scale: Scale) -> Step:
    done = writer.ask(Pace(rate=rate, seconds=scale.watch_seconds), Paced)
    look = watchers.Look(expected=done.sent * scale.watchers, patience=limits.SETTLE)
    return _step(rate, done, clients.ask(look, watchers.Seen), scale)


def _step(rate: int, done: Paced, seen: watchers.Seen, scale: Scale) -> Step:
    if seen.delay is None:
        raise BenchFailed("no client got an event")
    late = (seen.last_ns - done.ended_ns) / 1e9
    whole = seen.frames >= done.sent * scale.watchers and seen.connected == scale.watchers
    on_time = (done.ended_ns - done.began_ns) / 1e9 <= scale.watch_seconds * 1.05
    return Step(
        rate=rate,
        deliveries=seen.frames / max(1e-9, (seen.last_ns - done.began_ns) / 1e9),
        p50=seen.delay.p50,
        p99=seen.delay.p99,
        joined=seen.frames / max(1, seen.reads),
        sustained=whole and on_time and late <= scale.watch_seconds * 0.05 + 0.1,
    )


def _highest(steps: list[Step]) -> Step:
    """The last sustained one; if none was, the first: its rate then is what could be had."""
    return next((step for step in reversed(steps) if step.sustained), steps[0])
