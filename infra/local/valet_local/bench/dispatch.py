"""(b) From `POST …/messages` to the prompt at the runner.

Measured: from the first byte of the request written (one kept connection, no HTTP library) to the arrival of
`fact.turn_dispatched` at a durable consumer made and read exactly as the runner's is. In between lie api, the request
to the ledger, two facts appended one after the other (`prompt_accepted`, read back and reacted to, then
`turn_dispatched`) and the delivery. Each prompt waits for the turn before it to have ended (a stand-in for OpenCode
answers at once), so nothing is ever queued.

Floor: one publish into a stream on the same broker, awaited, from the same process.
"""

import asyncio
import time

import uvloop
from nats.js.api import StorageType, StreamConfig
from valet_protocol import codec, subjects
from valet_protocol.events import facts
from valet_service import broker
from valet_service.durable_reader import Delivery, delete_consumer, ensure_consumer, read_durable
from valet_service.log_reader import LogReader

from valet_local.bench import limits, wire
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale
from valet_local.bench.stage import Stage
from valet_local.bench.statistics import Spread, spread

BOUND = (
    "two requests and two facts in a row, each appended and read back before the next step, with a reply that waits "
    "for PostgreSQL's commit beside them; all are waits for another process, so a busy machine shows it first"
)
"""What the way consists of beyond its floor."""

_CONSUMER = "bench-dispatch"


def run(stage: Stage, scale: Scale) -> list[Figure]:
    """The floor before and after; the better half counts. Raises `BenchFailed`."""
    session_id = stage.ready_session()
    floor, real = uvloop.run(_run(stage, session_id, scale))
    stage.end_session(session_id)
    note = f"{real.samples} prompts; p99 of the floor {floor.p99:.2f} ms"
    name, under = "POST → prompt at the runner", "one awaited JetStream publish"
    return [
        Figure(
            bench="b",
            name=f"{name}, p50",
            value=real.p50,
            unit="ms",
            floor=floor.p50,
            floor_name=under,
            aim=Aim(at_most=10.0),
            bound=BOUND,
            note=note,
        ),
        Figure(bench="b", name=f"{name}, p99", value=real.p99, unit="ms", floor=floor.p99, floor_name=under),
    ]


async def _run(stage: Stage, session_id: str, scale: Scale) -> tuple[Spread, Spread]:
    before = await _publishes(stage, scale)
    real = await _prompts(stage, session_id, scale)
    after = await _publishes(stage, scale)
    return min(before, after, key=lambda run: run.p50), real


async def _publishes(stage: Stage, scale: Scale) -> Spread:
    nc = await stage.connect()
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name="BENCH", subjects=["bench.>"], storage=StorageType.FILE))
    took: list[float] = []
    for _ in range(scale.publishes):
        began = time.perf_counter()
        await js.publish("bench.floor", b"x" * 400)
        took.append((time.perf_counter() - began) * 1000)
    await js.delete_stream("BENCH")
    await broker.close(nc)
    return spread(took)


async def _prompts(stage: Stage, session_id: str, scale: Scale) -> Spread:
    nc = await stage.connect()
    await ensure_consumer(nc, _CONSUMER, [subjects.source(session_id, "fact")])
    arrived: dict[str, float] = {}
    news = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        now = time.perf_counter()
        event = codec.decode(delivery.payload, delivery.seq)
        if isinstance(event.data, facts.TurnDispatched):
            arrived[event.data.content] = now
            news.set()
        await delivery.acknowledge()

    reading = asyncio.create_task(read_durable(nc, _CONSUMER, handle))
    took: list[float] = []
    ended = [subjects.event(session_id, "agent", "turn_ended")]
    async with LogReader(nc, ended, start=1) as turns, wire.Kept(stage.endpoint) as api:
        for number in range(scale.prompts):
            content = f"prompt {number}"
            began = time.perf_counter()
            await api.post(f"/api/sessions/{session_id}/messages", b'{"content":"%s"}' % content.encode())
            async with asyncio.timeout(limits.TURN):
                while content not in arrived:
                    news.clear()
                    await news.wait()
                await turns.batch(1)
            took.append((arrived[content] - began) * 1000)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await delete_consumer(nc, _CONSUMER)
    await broker.close(nc)
    return spread(took)
