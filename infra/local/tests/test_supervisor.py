"""Claims about supervision, with real processes: small Python scripts that speak the readiness protocol."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from valet_local import identity, leftovers, limits
from valet_local.errors import StartFailed
from valet_local.identity import Identity, identify, is_alive
from valet_local.layout import layout, prepare
from valet_local.plan import ProcessSpec
from valet_local.supervisor import Edges, Supervisor

READY = """
import os, socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
"""
SERVE = READY + "import time\nwhile True: time.sleep(60)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVE
PARENT = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n" + SERVE


def script(name: str, text: str, **more: object) -> ProcessSpec:
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return ProcessSpec(name=name, command=(sys.executable, "-S", "-c", text), environment=environment, **more)  # type: ignore[arg-type]


class Watcher:
    """Everything the supervisor reported."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def __call__(self, process: str, event: str, detail: str) -> None:
        self.events.append((process, event, detail))

    def count(self, process: str, event: str) -> int:
        return sum(1 for one in self.events if one[:2] == (process, event))

    def order(self) -> list[tuple[str, str]]:
        return [(process, event) for process, event, _ in self.events]


async def until(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(limits.POLL)


Make = Callable[..., Supervisor]


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
async def make(tmp_path: Path, watcher: Watcher) -> AsyncIterator[Make]:
    places = layout(tmp_path / "d")
    prepare(places)
    made: list[Supervisor] = []

    def build(*specs: ProcessSpec) -> Supervisor:
        edges = Edges(
            logs=places.logs,
            sockets=places.run / "notify",
            record=places.processes,
            probes={},
            before_start={},
            report=watcher,
        )
        made.append(Supervisor(specs, edges))
        return made[-1]

    yield build
    for supervisor in made:
        await supervisor.stop()


def living(supervisor: Supervisor, name: str) -> Identity:
    pid = supervisor.pid(name)
    assert pid is not None
    process = identify(pid)
    assert process is not None
    return process


async def test_a_process_starts_only_when_those_before_it_are_ready(make: Make, watcher: Watcher) -> None:
    await make(script("second", SERVE, after=("first",)), script("first", SERVE)).start()
    order = watcher.order()
    assert order.index(("first", "ready")) < order.index(("second", "starting"))


async def test_a_killed_process_is_started_again(make: Make, watcher: Watcher) -> None:
    supervisor = make(script("one", SERVE))
    await supervisor.start()
    before = living(supervisor, "one")
    os.kill(before.pid, signal.SIGKILL)
    began = time.monotonic()
    await until(lambda: watcher.count("one", "ready") == 2)
    assert time.monotonic() - began < 5.0
    assert living(supervisor, "one") != before


async def test_what_an_older_process_said_does_not_make_the_next_one_ready(make: Make, watcher: Watcher) -> None:
    twice = READY + READY + "import time; time.sleep(0.2)\nraise SystemExit(3)\n"
    supervisor = make(script("one", twice))
    await supervisor.start()
    await until(lambda: watcher.count("one", "died") >= 2)
    for name, event in (("one", "starting"), ("one", "ready"), ("one", "died")):
        assert watcher.order().count((name, event)) >= 2


async def test_stop_leaves_no_process_not_even_one_that_ignores_signals(make: Make, watcher: Watcher) -> None:
    supervisor = make(script("deaf", STUBBORN), script("good", SERVE), script("parent", PARENT, rank="server"))
    await supervisor.start()
    everyone = [living(supervisor, name) for name in ("deaf", "good", "parent")]
    _, grandchild = identity.tree(everyone[2])
    began = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - began < 10.0
    assert not any(is_alive(process) for process in everyone)
    await until(lambda: not is_alive(grandchild), timeout=1.0)  # it was killed; the kernel takes a moment
    assert watcher.count("deaf", "killed") == 1
    assert watcher.count("good", "stopped") == 1


async def test_services_stop_before_the_servers(make: Make, watcher: Watcher) -> None:
    supervisor = make(script("database", SERVE, rank="server"), script("service", SERVE))
    await supervisor.start()
    await supervisor.stop()
    assert watcher.order()[-2:] == [("service", "stopped"), ("database", "stopped")]


async def test_a_process_that_never_gets_ready_fails_the_start_with_the_end_of_its_log(make: Make) -> None:
    supervisor = make(script("broken", "raise SystemExit('no such thing as a free lunch')"))
    with pytest.raises(StartFailed, match="free lunch"):
        await supervisor.start()


async def test_a_missing_program_fails_the_start_by_name(make: Make) -> None:
    supervisor = make(ProcessSpec(name="ghost", command=("/no/such/program",), environment={}))
    with pytest.raises(StartFailed, match="/no/such/program"):
        await supervisor.start()


async def test_a_stop_while_starting_leaves_nothing(make: Make, watcher: Watcher) -> None:
    supervisor = make(script("slow", "import time; time.sleep(600)"))
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: supervisor.pid("slow"))
    process = living(supervisor, "slow")
    starting.cancel()
    await supervisor.stop()
    assert not is_alive(process)


async def test_the_next_start_ends_what_a_dead_supervisor_left(make: Make, tmp_path: Path) -> None:
    supervisor = make(script("one", SERVE), script("deaf", STUBBORN))
    await supervisor.start()
    left = [living(supervisor, "one"), living(supervisor, "deaf")]
    supervisor._stopping = True  # as if it had died: nobody restarts them
    assert await asyncio.to_thread(leftovers.end_processes, layout(tmp_path / "d")) == 2
    assert not any(is_alive(process) for process in left)


def test_a_reused_pid_is_not_mistaken_for_a_leftover(tmp_path: Path) -> None:
    places = layout(tmp_path)
    places.processes.write_text(f'[{{"name":"x","pid":{os.getpid()},"start_time":1,"stop_signal":15}}]')
    assert leftovers.end_processes(places) == 0


def test_a_sandbox_that_nobody_ended_is_killed_with_its_descendants(tmp_path: Path) -> None:
    import subprocess

    places = layout(tmp_path / "d")
    prepare(places)
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    sandbox = subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
    children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children")
    deadline = time.monotonic() + 10
    while not children.read_text():
        assert time.monotonic() < deadline
    child = identify(int(children.read_text().split()[0]))
    process = identify(sandbox.pid)
    assert child is not None
    assert process is not None
    (places.sandboxes / "s.json").write_text(f'{{"pid":{process.pid},"start_time":{process.start_time}}}')
    assert leftovers.end_sandboxes(places) == 2
    sandbox.wait(5)
    assert not is_alive(child)
    assert not list(places.sandboxes.iterdir())
