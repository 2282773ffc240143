"""(a) From a frame of OpenCode's stream to the event at a client.

Measured: a real session — sandbox, runner, portal, broker, event bus, a client on a bare socket at the public address —
in which a stand-in for OpenCode writes `message.part.delta` frames at a steady rate. Each delta's text is the moment
just before its frame was written; the delay ends when the client's `recv` returns the bytes that hold it. All clocks
are the machine's monotonic one.

Floor: the same events at the same rate from a process that publishes them to core NATS (nothing stored, nothing
acknowledged) through a subscriber that writes them to a socket as server-sent events, to the same reader.
"""

from valet_local.bench import child, limits, wire
from valet_local.bench.child import Child, Pace
from valet_local.bench.pipe import Setup
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale
from valet_local.bench.stage import Stage
from valet_local.bench.statistics import Spread, middle_run, spread

BOUND = (
    "besides the floor's two hops each event crosses the runner, its relay to the portal, the portal and the store of "
    "the log; every one is a process or a task that must be woken, so a busy machine shows it first"
)
"""What the way consists of beyond its floor."""

_ENDED = b"event: agent.turn_ended\n"


def run(stage: Stage, scale: Scale) -> list[Figure]:
    """Both, alternating. Raises `BenchFailed`."""
    session_id = stage.ready_session()
    real: list[Spread] = []
    floor: list[Spread] = []
    with (
        Child("valet_local.bench.pipe", _setup(stage, "forwarder")) as forwarder,
        Child("valet_local.bench.pipe", _setup(stage, "publisher")) as publisher,
    ):
        for _ in range(scale.stream_runs):
            floor.append(_floor(forwarder.started.port, publisher, scale))
            real.append(_real(stage, session_id, scale))
    stage.end_session(session_id)
    value, beside = middle_run(real), middle_run(floor)
    note = f"{scale.stream_runs} × {value.samples} frames at {scale.stream_rate}/s"
    name = "OpenCode frame → client"
    under = "core NATS → socket"
    return [
        Figure(
            bench="a",
            name=f"{name}, p50",
            value=value.p50,
            unit="ms",
            floor=beside.p50,
            floor_name=under,
            aim=Aim(times_floor=3.0),
            bound=BOUND,
            note=note,
        ),
        Figure(
            bench="a", name=f"{name}, p99", value=value.p99, unit="ms", floor=beside.p99, floor_name=under, note=note
        ),
    ]


def _setup(stage: Stage, role: str) -> Setup:
    return Setup(
        role="publisher" if role == "publisher" else "forwarder", nats_url=stage.nats_url, creds=str(stage.creds)
    )


def _real(stage: Stage, session_id: str, scale: Scale) -> Spread:
    cursor = stage.session(session_id).seq
    with wire.Stream.of(stage.endpoint, session_id, cursor) as stream:
        stream.until(wire.SYNCED, limits.STEP)
        stage.prompt(session_id, f"stream {scale.stream_rate} {scale.stream_seconds}")
        pieces = stream.until(_ENDED, limits.TURN)
    stage.wait(session_id, lambda view: view.status == "ready", "the end of the turn")
    return spread(wire.delays_ms(pieces))


def _floor(port: int, publisher: Child, scale: Scale) -> Spread:
    with wire.Stream(("127.0.0.1", port), b"") as stream:
        stream.until(wire.SYNCED, limits.STEP)  # it has us
        total = int(scale.stream_rate * scale.stream_seconds)
        # the publisher reports at its end, and meanwhile we read
        publisher.say(Pace(rate=scale.stream_rate, seconds=scale.stream_seconds))
        pieces: list[wire.Piece] = []
        seen = 0
        for piece in stream.pieces():
            pieces.append(piece)
            seen += piece.data.count(b"\n\n")
            if seen >= total:
                break
        publisher.hear(child.Paced)
    return spread(wire.delays_ms(pieces))
