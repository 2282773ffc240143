"""Claims about a disk that fills up: what is said, and that the real NATS is started again when that helps.

Bug class: a server that refuses everything after one failed write, long after there is room again.
"""

import asyncio
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from valet_local import keys, limits, nats
from valet_local.disk_policy import Known, Seen, after_look
from valet_local.disk_watch import DiskWatch
from valet_local.journal import Journal
from valet_local.layout import Layout, layout, prepare
from valet_local.plan import ProcessSpec
from valet_local.supervisor import Edges, Supervisor

STUCK = "JetStream stream 'A > SESSIONS' write error: write /d/1.blk: no space left on device"


def look(known: Known, free_mb: int, complaint: str | None = "", now: float = 0.0) -> tuple[Known, list[str], str]:
    after, measures = after_look(known, Seen(free_mb=free_mb, complaint=complaint, now=now), "/d")
    return after, list(measures.say), measures.restart


def test_who_runs_the_platform_is_warned_once_at_each_threshold_and_told_when_there_is_room_again() -> None:
    known, said = Known(), []
    for free in (5000, 1000, 1000, 400, 520, 400, 3, 5, 700, 1100, 5000, 5000):
        known, words, _ = look(known, free)
        said += words
    assert [words.split("; ")[0].split(". ")[0] for words in said] == [
        "warning: only 1000 MB are free at /d",
        "warning: only 400 MB are free at /d: new sessions and files are refused",
        "warning: the disk of /d is full (3 MB free): nothing can be stored, not even that a session is ended",
        "warning: only 700 MB are free at /d",
        "There is room again: 5000 MB are free at /d",
    ]


def test_a_log_that_cannot_be_written_is_left_alone_until_there_is_room() -> None:
    known, said, restart = look(Known(room="full"), 0, STUCK)
    assert not restart
    assert "started again when there is room" in said[0]
    known, said, restart = look(known, 40, STUCK, now=5)
    assert not restart
    known, said, restart = look(known, 600, STUCK, now=10)
    assert restart
    known, said, restart = look(known, 600, "", now=15)
    assert said == ["The log can be written again"]
    assert not restart


def test_a_start_that_does_not_help_is_repeated_with_growing_pauses() -> None:
    known, starts = Known(), []
    for now in range(0, 2000, 5):
        known, _, restart = look(known, 5000, STUCK, now=now)
        starts += [now] if restart else []
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (limits.UNSTICK_FIRST, limits.UNSTICK_LONGEST)


def test_a_broker_that_does_not_answer_or_complains_of_something_else_is_not_started_again_for_it() -> None:
    for complaint in (None, "", "JetStream is not current"):
        assert not look(Known(), 5000, complaint)[2]


def test_a_full_disk_does_not_end_the_supervisor(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is Linux's")
    (tmp_path / "supervisor.log").symlink_to("/dev/full")
    Journal(tmp_path / "supervisor.log", quiet=True).note("one", "died", "signal 9")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Layout]:
    """A data directory whose log lies on a disk of 96 MB."""
    places = layout(tmp_path / "d")
    prepare(places)
    command = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(places.nats)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield places
    subprocess.run(["umount", "-l", str(places.nats)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError:
            return


async def until(condition: object, what: str, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not await condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def test_nats_writes_again_after_a_full_disk_without_anybody_s_help(
    small: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    server = nats.prepare(small, keys.ensure(small).trust, nats.find_binary())
    happened: list[tuple[str, str]] = []
    supervisor = Supervisor(
        (
            ProcessSpec(
                name="nats",
                command=(str(server.binary), "-c", str(server.config)),
                environment={},
                readiness="probe",
                rank="server",
            ),
        ),
        Edges(
            logs=small.logs,
            sockets=small.run / "notify",
            record=small.processes,
            probes={"nats": lambda _: nats.wait_ready(server.port)},
            before_start={},
            report=lambda process, event, _: happened.append((process, event)),
        ),
    )
    watch = DiskWatch(small, server.health, supervisor, Journal(small.logs / "supervisor.log", quiet=False))
    client = Client()
    try:
        await supervisor.start()
        await client.connect(server.url, user_credentials=str(small.creds / "session-ledger.creds"))
        js = client.jetstream()
        await js.add_stream(name="SESSIONS", subjects=["session.>"])

        async def stored() -> bool:
            try:
                await js.publish("session.0.x.fact.y", bytes(100_000), timeout=1)
            except (NatsTimeout, ConnectionError):
                return False
            return True

        assert await stored()
        await watch.look()
        assert not happened[2:], happened
        filler = small.nats / "filler"
        await asyncio.to_thread(fill, filler)

        async def refused() -> bool:
            return not await stored()

        await until(refused, "a write to be refused")
        await watch.look()
        await watch.look()
        assert ("nats", "restarting") not in happened, "it was started again while that could not help"
        filler.unlink()
        assert not await stored(), "NATS has learnt to recover by itself: this watch is no longer needed"
        await watch.look()
        await until(stored, "the log to be written again")
        await watch.look()
        assert happened.count(("nats", "restarting")) == 1
        assert ("nats", "died") not in happened
    finally:
        await client.close()
        await supervisor.stop()
    told = "".join(capsys.readouterr())
    for words in ("is full", "cannot write the log", "The log can be written again"):
        assert told.count(words) == 1, told
