"""How processes end, and what is told of it: groups, leftovers, the service's own end, events. A real service."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from valet_processes import process_table
from valet_processes.client import ProcessesClient, ProcessEvent
from valet_processes.events_stream import Snapshot
from valet_processes.manager import Deleted
from valet_processes.testing import ProcessService
from valet_protocol.errors import NotFound
from valet_protocol.events.machine import ProcessInfo

WAIT = 40.0
SIZE = {"rows": 24, "cols": 80}


async def until(condition, what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def exited(processes: ProcessesClient, key: str) -> ProcessInfo:
    deadline = time.monotonic() + WAIT
    while (info := await processes.get(key)).status == "running":
        assert time.monotonic() < deadline, f"{info} does not end"
        await asyncio.sleep(0.02)
    return info


def alive(pid: int) -> bool:
    return any(row.pid == pid and not row.zombie for row in process_table.rows())


async def pids_of(processes: ProcessesClient, key: str, count: int) -> list[int]:
    """Numbers it printed, one a line."""
    async with processes.connect(key) as connection, asyncio.timeout(WAIT):
        got = b""
        async for piece in connection:
            got += piece.data
            if got.count(b"\n") >= count:
                return [int(line) for line in got.split()[:count]]
    raise AssertionError(got)


async def test_the_code_or_the_signal_of_an_end_is_always_reported(processes: ProcessesClient):
    for script, code, name in (("exit 0", 0, None), ("exit 7", 7, None), ("kill -SEGV $$", None, "SIGSEGV")):
        for pty in (None, SIZE):
            info = await processes.create(command="sh", args=["-c", script], **{"pty": pty} if pty else {})
            info = await exited(processes, info.id)
            assert (info.exit_code, info.signal) == (code, name)
            assert info.exited_at
            assert info.exited_at >= info.created_at


async def test_a_signal_reaches_the_whole_group(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"])
    children = await pids_of(processes, info.id, 2)
    await processes.signal(info.id, "SIGTERM")
    assert (await exited(processes, info.id)).signal == "SIGTERM"
    assert not any(alive(pid) for pid in children)


async def test_an_end_is_reported_although_others_hold_the_output_open_and_they_are_ended(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "trap '' TERM; sleep 1000 & echo $!; exit 5"])
    (child,) = await pids_of(processes, info.id, 1)
    info = await exited(processes, info.id)
    assert (info.exit_code, info.signal) == (5, None)
    assert not alive(child), "a process is its whole group"


async def test_what_a_pipeline_still_writes_after_its_leader_is_not_lost(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "(sleep 0.5; echo late) & echo early"])
    async with processes.connect(info.id) as connection, asyncio.timeout(WAIT):
        assert b"".join([piece.data async for piece in connection]) == b"early\nlate\n"


async def test_a_daemon_that_keeps_the_output_open_does_not_hold_the_end_up_and_goes_with_the_service(
    own_service: ProcessService,
):
    async with ProcessesClient(own_service.spec.socket) as processes:
        info = await processes.create(command="sh", args=["-c", "setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.3"])
        (daemon,) = await pids_of(processes, info.id, 1)
        assert (await exited(processes, info.id)).exit_code == 0
        assert alive(daemon), "who leaves the group lives on"
    own_service.stop()
    await until(lambda: not alive(daemon), "the daemon outlives the service")


async def test_delete_asks_first_then_kills_all_of_it_and_is_harmless_twice(processes: ProcessesClient):
    polite = await processes.create(
        command="sh", args=["-c", "trap 'echo bye; exit 4' TERM; echo $$; sleep 1000 & wait"]
    )
    await pids_of(processes, polite.id, 1)
    async with processes.connect(polite.id) as connection:
        first, second = await asyncio.gather(processes.delete(polite.id), processes.delete(polite.id))
        assert first == second
        assert (first.exit_code, first.status) == (4, "exited")
        assert b"bye" in b"".join([piece.data async for piece in connection]), "who was connected gets the last words"
        assert connection.exited
    with pytest.raises(NotFound):
        await processes.get(polite.id)
    with pytest.raises(NotFound):
        await processes.delete(polite.id)


async def test_delete_ends_what_does_not_want_to_end_and_every_job_of_a_shell(processes: ProcessesClient):
    stubborn = await processes.create(command="sh", args=["-c", "trap '' TERM HUP; echo $$; while :; do sleep 1; done"])
    shell = await processes.create(command="bash", args=["--norc", "--noediting"], pty=SIZE)
    await pids_of(processes, stubborn.id, 1)
    async with processes.connect(shell.id) as terminal, asyncio.timeout(WAIT):
        await terminal.write(b"nohup sleep 1000 & echo job=$!=\n")
        seen = b""
        async for piece in terminal:
            seen += piece.data
            if seen.count(b"=") >= 4:
                break
    job = int(seen.split(b"=")[-2])
    async with processes.connect(stubborn.id) as connection:
        with pytest.raises(TimeoutError):  # whoever asked does not wait: what was begun is finished all the same
            await asyncio.wait_for(processes.delete(stubborn.id), 0.5)
        assert (await processes.delete(shell.id)).status == "exited"
        async with asyncio.timeout(WAIT):
            async for _ in connection:
                pass
        assert connection.exited
        assert connection.exited.signal == "SIGKILL"
    await until(lambda: not alive(job) and not alive(stubborn.pid), "something is left")
    with pytest.raises(NotFound):
        await processes.get(stubborn.id)


async def test_nothing_dead_is_left_in_the_table_of_processes(
    processes: ProcessesClient, shared_service: ProcessService
):
    script = "for i in 1 2 3; do (setsid true &) ; done; sleep 0.1"
    info = await processes.create(command="sh", args=["-c", script])
    await exited(processes, info.id)

    def zombies() -> list[int]:
        return [row.pid for row in process_table.rows() if row.zombie and row.parent == shared_service.pid]

    await until(lambda: not zombies(), "zombies are left")


@contextlib.asynccontextmanager
async def following(processes: ProcessesClient, after: int | None) -> AsyncIterator[AsyncIterator[ProcessEvent]]:
    async with asyncio.timeout(WAIT), contextlib.aclosing(processes.events(after)) as events:
        yield events


async def test_events_tell_a_life_in_order_and_resume_without_gap_or_repetition(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "read x; exit 2"], pty=SIZE)
    await processes.label(info.id, "renamed")
    await processes.label(info.id, "renamed")
    await processes.resize(info.id, rows=10, cols=20)
    await processes.resize(info.id, rows=10, cols=20)
    seen: list[ProcessEvent] = []
    async with following(processes, 0) as events:
        async for event in events:
            if isinstance(event.data, ProcessInfo) and event.data.id == info.id:
                seen.append(event)
            if len(seen) == 3:
                break
    async with following(processes, seen[-1].id) as events:  # resumed: what happens while nobody listens is not missed
        await processes.input(info.id, data="\n")
        await exited(processes, info.id)
        await processes.delete(info.id)
        async for event in events:
            seen.append(event)
            if event.type == "process.deleted":
                break
    assert [event.type.partition(".")[2] for event in seen] == ["created", "updated", "updated", "exited", "deleted"]
    assert sorted({event.id for event in seen}) == [event.id for event in seen]
    labels = [(event.data.label, event.data.rows) for event in seen if isinstance(event.data, ProcessInfo)]
    assert labels == [("", 24), ("renamed", 24), ("renamed", 10), ("renamed", 10)]
    last = seen[-2].data
    assert isinstance(last, ProcessInfo)
    assert (last.status, last.exit_code) == ("exited", 2)
    assert seen[-1].data == Deleted(id=info.id)


async def test_sigterm_ends_every_process_and_tells_who_is_connected(own_service: ProcessService):
    async with ProcessesClient(own_service.spec.socket) as processes:
        plain = await processes.create(
            command="sh", args=["-c", "trap '' TERM; echo $$; sleep 1000 & wait; sleep 1000"]
        )
        shell = await processes.create(command="sh", pty=SIZE)
        await pids_of(processes, plain.id, 1)
        async with processes.connect(plain.id) as one, processes.connect(shell.id) as other:
            assert await asyncio.to_thread(own_service.stop) == 0
            async with asyncio.timeout(WAIT):
                for connection in (one, other):
                    async for _ in connection:
                        pass
            assert one.exited
            assert one.exited.signal == "SIGKILL"
            assert other.exited
    assert not alive(plain.pid)
    assert not alive(shell.pid)


async def test_a_killed_service_says_after_its_restart_what_became_of_its_processes(own_service: ProcessService):
    async with ProcessesClient(own_service.spec.socket) as processes:
        done = await processes.create(command="sh", args=["-c", "echo done; exit 3"], keep_output=True)
        await exited(processes, done.id)
        script = "echo kept; sleep 1000 & setsid sleep 1000 & wait"
        plain = await processes.create(command="sh", args=["-c", script], keep_output=True, tag="kept")
        shell = await processes.create(command="sh", pty=SIZE)
        await until(lambda: len(marked(plain.id)) == 3, "it did not start all of it")
        async with following(processes, 0) as events:
            last = await anext(events)
    left = marked(plain.id)
    own_service.kill()
    own_service.start()
    await until(lambda: not any(alive(pid) for pid in [*left, shell.pid]), "something outlived the service")
    async with ProcessesClient(own_service.spec.socket) as processes:
        infos = {info.id: info for info in await processes.list()}
        assert infos[done.id].exit_code == 3
        assert (infos[plain.id].status, infos[plain.id].signal) == ("exited", "SIGKILL")
        assert infos[shell.id].status == "exited"
        assert (await processes.output("kept")).data == b"kept\n"
        async with following(processes, last.id) as events:
            event = await anext(events)
        assert event.type == "snapshot", "that of a history that is gone"
        assert event.id > last.id
        assert isinstance(event.data, Snapshot)
        assert {info.id for info in event.data.items} == set(infos)
        await processes.create(command="true", tag="kept")


def marked(id: str) -> list[int]:
    """Living processes started, at whatever remove, by this one."""
    found = []
    for row in process_table.rows():
        with contextlib.suppress(OSError):
            if not row.zombie and f"VALET_PROCESS={id}".encode() in Path(f"/proc/{row.pid}/environ").read_bytes():
                found.append(row.pid)
    return found


async def test_a_bad_spec_is_said_in_the_log_and_ends_it(tmp_path: Path):
    service = ProcessService(tmp_path)
    service.spec = {"socket": 1}  # type: ignore[assignment]
    with pytest.raises(TimeoutError, match="standard input"):
        service.start()


def test_the_service_cannot_be_read_by_others_of_its_user(tmp_path: Path):
    # root may read everything unless it gives that up
    given_up = "-sys_ptrace,-sys_admin,-perfmon"
    plain = ["setpriv", f"--bounding-set={given_up}", f"--inh-caps={given_up}"] if os.getuid() == 0 else []

    def readable(pid: int) -> bool:
        return bool(subprocess.run([*plain, "cat", f"/proc/{pid}/environ"], capture_output=True, check=False).stdout)

    with ProcessService(tmp_path, run_by=plain) as service, subprocess.Popen([*plain, "cat"], stdin=-1) as other:
        assert not readable(service.pid)
        deadline = time.monotonic() + WAIT
        while not readable(other.pid):  # once setpriv has become cat
            assert time.monotonic() < deadline, "the check itself does not work"
            time.sleep(0.02)
        other.kill()
