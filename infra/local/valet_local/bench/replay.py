"""(d) A client that comes back and has missed ten thousand events.

Measured: a session with that many stored events (messages, texts, tool calls: what is left of a long session), a bare
socket at the public address that asks for `events?after=0`; from the connection to the frame `synced`. Every event's
frame is counted.

Floor: a bare `LogReader` with the session's filter, until it has them all.
"""

import asyncio
import time

import uvloop
from valet_protocol import codec, subjects
from valet_service import broker
from valet_service.log_reader import LogReader

from valet_local.bench import events, limits, wire
from valet_local.bench.errors import BenchFailed
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale
from valet_local.bench.stage import Stage
from valet_local.bench.statistics import median

BOUND = (
    "every event is parsed by the broker's client, checked to be an event and copied into a frame, in one Python "
    "process that reads history in pages so that live clients do not wait"
)
"""What the way consists of beyond its floor."""


def run(stage: Stage, scale: Scale) -> list[Figure]:
    """Replay and floor, alternating; medians. Raises `BenchFailed`."""
    session_id = stage.ready_session()
    last = uvloop.run(_fill(stage, session_id, scale.replay_events))
    stage.end_session(session_id)
    stage.wait(session_id, lambda view: view.seq >= last, "the ledger to have read them", limits.FOLD)
    real: list[float] = []
    floor: list[float] = []
    for _ in range(scale.replay_runs):
        floor.append(uvloop.run(_read(stage, session_id, scale.replay_events)))
        real.append(_replay(stage, session_id, scale.replay_events))
    return [
        Figure(
            bench="d",
            name=f"replay of {scale.replay_events:,} events",
            value=median(real),
            unit="s",
            floor=median(floor),
            floor_name="bare consumer",
            aim=Aim(at_most=1.0),
            bound=BOUND,
            note=f"median of {scale.replay_runs}; from {min(real):.2f} to {max(real):.2f} s",
        )
    ]


async def _fill(stage: Stage, session_id: str, count: int) -> int:
    last = None
    async with stage.outbox() as outbox:
        for event in events.replayable(session_id, count=count, seed=2):
            last = outbox.put(codec.encode(event, source=f"/sandboxes/{session_id}"))
        await outbox.flush()
    assert last is not None
    return await last


async def _read(stage: Stage, session_id: str, count: int) -> float:
    nc = await stage.connect()
    began = time.perf_counter()
    async with asyncio.timeout(limits.STEP), LogReader(nc, [subjects.session(session_id)], start=1) as reader:
        seen = 0
        while seen < count:
            seen += len(await reader.batch(1000))
    took = time.perf_counter() - began
    await broker.close(nc)
    return took


def _replay(stage: Stage, session_id: str, count: int) -> float:
    began = time.perf_counter()
    with wire.Stream.of(stage.endpoint, session_id, 0) as stream:
        pieces = stream.until(wire.SYNCED, limits.STEP)
        took = time.perf_counter() - began
    frames = b"".join(piece.data for piece in pieces).count(b"\nid: ")
    if frames < count:
        raise BenchFailed(f"{frames} of {count} events were replayed")
    return took
