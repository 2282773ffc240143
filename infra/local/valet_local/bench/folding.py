"""(c) How fast the session ledger folds the log and projects it into PostgreSQL.

Measured: a broker and a PostgreSQL of their own, a log filled with made-up but realistic events of several sessions
(`events.history`), then `python -m valet_session_ledger` from its start until `ledger.checkpoints` has the log's last
sequence: every event is decoded, folded, archived and in the read models, in transactions. What the same process
needs from its start to being ready on an empty log is subtracted: it is paid once and says nothing about the rate.

Floor: a bare `LogReader` on the whole log, which is what the ledger reads, counting the same events.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncpg
import uvloop
from valet_protocol import codec, subjects
from valet_service import broker
from valet_service.log_reader import LogReader
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

from valet_local import identity, layout, postgres
from valet_local.bench import events, limits, stage
from valet_local.bench.errors import BenchFailed
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale

BOUND = (
    "one Python process does it all, and PostgreSQL's work hardly overlaps with it: profiled, its time goes in about "
    "equal parts to taking messages from the broker, to decoding and folding, and to handing rows to PostgreSQL, the "
    "rest to purging deltas and waiting for commits; see docs/performance.md"
)
"""As profiled with py-spy."""


def run(scale: Scale) -> list[Figure]:
    """Once: it is the longest of them. Raises `BenchFailed` and `LocalError`s."""
    with ExitStack() as stack:
        folder = stack.enter_context(stage.folder())
        server = stack.enter_context(BrokerProcess(folder / "nats"))
        database = stack.enter_context(_database(folder / "d"))
        start = _time_to_fold(server.url, database, folder, 0)
        last = uvloop.run(_fill(server, scale))
        floor = uvloop.run(_count(server, scale.fold_events))
        took = _time_to_fold(server.url, database, folder, last)
    return [
        Figure(
            bench="c",
            name="ledger: fold and projection",
            value=scale.fold_events / max(1e-9, took - start),
            unit="events/s",
            floor=scale.fold_events / floor,
            floor_name="bare consumer",
            aim=Aim(at_least=30_000),
            bound=BOUND,
            note=f"{scale.fold_events:,} events of {scale.fold_sessions} sessions in {took - start:.2f} s, "
            f"after {start:.2f} s for the process",
        )
    ]


@contextmanager
def _database(data: Path) -> Iterator[str]:
    """A PostgreSQL of our own; its URL."""
    places = layout.layout(data)
    layout.prepare(places)
    server = postgres.prepare(places)
    with (data / "postgres.log").open("ab") as log:
        process = subprocess.Popen(server.command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + limits.CHILD_START
        while not postgres.is_ready(server.data, process.pid):
            if time.monotonic() > deadline or process.poll() is not None:
                raise BenchFailed(f"PostgreSQL did not start: {(data / 'postgres.log').read_text()[-300:]}")
            time.sleep(limits.POLL)
        yield server.url
    finally:
        process.kill()
        process.wait()
        identity.end(identity.working_in(server.data), grace=0.0)


async def _fill(server: BrokerProcess, scale: Scale) -> int:
    """Write the log; its last sequence."""
    nc = await server.connect("bench")
    await broker.ensure_stream(nc)
    await broker.close(nc)
    last = None
    async with Outbox(lambda: server.connect("bench-outbox", reconnect=False)) as outbox:
        for event in events.history(sessions=scale.fold_sessions, count=scale.fold_events, seed=1):
            last = outbox.put(codec.encode(event, source="/bench"))
            if outbox.backlog >= 4096:
                await outbox.flush()
        await outbox.flush()
    assert last is not None
    return await last


async def _count(server: BrokerProcess, count: int) -> float:
    """Seconds of a bare reader."""
    nc = await server.connect("bench")
    began = time.perf_counter()
    async with asyncio.timeout(limits.FOLD), LogReader(nc, [subjects.EVERYTHING], start=1) as reader:
        seen = 0
        while seen < count:
            seen += len(await reader.batch(1000))
    took = time.perf_counter() - began
    await broker.close(nc)
    return took


def _time_to_fold(nats_url: str, database: str, folder: Path, last: int) -> float:
    """Seconds from the ledger's start until it is ready and has projected up to `last`."""
    path = folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, (folder / "ledger.log").open("ab") as log:
        notify.bind(str(path))
        notify.settimeout(limits.FOLD)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VALET_")}
        environment |= {
            "VALET_NATS_URL": nats_url,
            "VALET_DATABASE_URL": database,
            "VALET_DATA_DIR": str(folder),
            "VALET_RUN_DIR": str(folder),
            "VALET_LOG_LEVEL": "warning",
            "NOTIFY_SOCKET": str(path),
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "valet_session_ledger"], stdout=log, stderr=log, env=environment
        )
        try:
            try:
                if not last:
                    notify.recv(100)
                    return time.perf_counter() - began
                return uvloop.run(_projected(database, last)) - began
            except TimeoutError:
                words = (folder / "ledger.log").read_text()[-300:]
                raise BenchFailed(f"the ledger was not done within {limits.FOLD:g} s: {words}") from None
        finally:
            process.terminate()
            try:
                process.wait(limits.CHILD_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            path.unlink(missing_ok=True)


async def _projected(database: str, last: int) -> float:
    """When every shard's checkpoint has reached `last`. Raises `TimeoutError`."""
    connection = await asyncpg.connect(database)
    try:
        async with asyncio.timeout(limits.FOLD):
            while (await connection.fetchval("SELECT min(seq) FROM ledger.checkpoints") or 0) < last:  # noqa: ASYNC110 - another process
                await asyncio.sleep(limits.POLL * 4)
        return time.perf_counter()
    finally:
        await connection.close()
