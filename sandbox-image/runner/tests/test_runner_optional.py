"""Claims about the parts beside OpenCode one by one: services on demand, supervision, what the gateway is told. Real
processes and sockets; no OpenCode, no broker.
"""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import BootStepCompleted, ServiceChanged
from valet_runner import limits, on_demand, optional_services
from valet_runner.boot_steps import BootSteps
from valet_runner.gateway_control import GatewayControl
from valet_runner.on_demand import OnDemand
from valet_runner.optional_services import Program, Recipe
from valet_runner.supervised import Supervised
from valet_runner.testing import condition

ENVIRONMENT = {"PATH": os.environ["PATH"]}


async def no_wait() -> None:
    """There is always room."""


class Log:
    """What was said."""

    def __init__(self) -> None:
        self.said: list[Data] = []
        self.steps = BootSteps(time.monotonic)
        self.steps.open(self.said.extend, no_wait)

    def states(self) -> list[tuple[str, str]]:
        return [(said.service, said.state) for said in self.said if isinstance(said, ServiceChanged)]


@pytest.fixture
def log() -> Log:
    return Log()


# -- services on demand


@contextlib.asynccontextmanager
async def opened(log: Log, folder: Path, prepare: Callable[[], Recipe]) -> AsyncIterator[tuple[OnDemand, list[int]]]:
    leads: list[int] = []
    service = OnDemand(
        "vscode",
        prepare=prepare,
        environment=ENVIRONMENT,
        folder=str(folder),
        steps=log.steps,
        clock=time.monotonic,
        leads_to=leads.append,
    )
    ready = asyncio.Event()

    async def open() -> None:
        ready.set()

    running = asyncio.create_task(service.run(on_demand.free_port(), opened=open))
    try:
        await asyncio.wait_for(ready.wait(), 10)
        yield service, leads
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


def server(folder: Path) -> Callable[[], Recipe]:
    def prepare() -> Recipe:
        port = on_demand.free_port()
        serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), str(port))
        sleep = Program(command=("sleep", "300"))
        return Recipe(name="vscode", programs=(sleep, Program(command=serve, listens=port)), port=port)

    return prepare


async def test_a_service_starts_for_its_first_visitor_and_again_after_its_end(log: Log, tmp_path: Path) -> None:
    async with opened(log, tmp_path, server(tmp_path)) as (service, leads):
        assert log.states() == []
        assert b"200 OK" in await get(leads[-1])
        assert log.states() == [("vscode", "running")]
        door, own = leads
        assert own == await service.start()
        processes = list(service._running)
        processes[0].kill()  # one of its programs
        await condition(lambda: log.states()[-1] == ("vscode", "stopped"))
        assert leads[-1] == door
        assert all(process.returncode is not None for process in processes)
        assert b"200 OK" in await get(door)
        assert log.states()[-1] == ("vscode", "running")
        last = list(service._running)
    assert all(process.returncode is not None for process in last)


async def test_a_service_that_cannot_start_says_why_and_turns_visitors_away(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ON_DEMAND_PAUSE", 600.0)
    tries: list[int] = []

    def prepare() -> Recipe:
        tries.append(1)
        broken = Program(command=("bash", "-c", "echo no display >&2; exit 4"), listens=on_demand.free_port())
        return Recipe(name="vscode", programs=(broken,), port=1)

    async with opened(log, tmp_path, prepare) as (_, leads):
        answers = [await get(leads[-1]) for _ in range(3)]
    assert all(b"503 Service Unavailable" in answer and b"no display" in answer for answer in answers)
    assert len(tries) == 1
    assert log.states() == [("vscode", "stopped")]


def test_stale_locks_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    (tmp_path / ".X11-unix").mkdir()
    editor = tmp_path / ".local" / "share" / "code-server"
    editor.mkdir(parents=True)
    lock, socket = tmp_path / ".X99-lock", tmp_path / ".X11-unix" / "X99"
    for path in (socket, editor / "code.lock", editor / "settings.json"):
        path.touch()
    lock.write_text(f"{os.getpid():>10}\n")
    assert optional_services.clean("vnc", home="/h", tmp=tmp_path) == []
    lock.write_text("   4194399\n")  # beyond every process number
    assert optional_services.clean("vnc", home="/h", tmp=tmp_path) == [lock, socket]
    assert optional_services.clean("vnc", home="/h", tmp=tmp_path) == []
    assert optional_services.clean("vscode", home=str(tmp_path)) == [editor / "code.lock"]
    assert (editor / "settings.json").exists()


def test_a_desktop_is_offered_only_where_all_of_its_programs_are() -> None:
    def without_fluxbox(name: str) -> str | None:
        return None if name == "fluxbox" else f"/usr/bin/{name}"

    assert optional_services.missing("vnc", without_fluxbox) == ["fluxbox"]
    assert optional_services.display(without_fluxbox) is None
    assert optional_services.display(lambda name: name) == ":99"
    ports = itertools.count(5000)
    recipe = optional_services.recipe(
        "vnc", find=lambda name: f"/usr/bin/{name}", free_port=lambda: next(ports), home="/h", workspace="/w"
    )
    assert recipe.programs[-1].listens == recipe.port


# -- supervision


async def test_a_service_that_ends_is_started_again_with_its_spec_and_not_in_a_hurry(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fake_service"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import sys, signal\nprint('READY' if sys.stdin.read() == '{}' else 'NO', flush=True)\nsignal.pause()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(limits, "RESTART_WAIT", 0.01)
    service = Supervised(
        "gateway",
        module="fake_service",
        spec=b"{}",
        environment={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        folder=str(tmp_path),
        steps=log.steps,
        clock=time.monotonic,
    )
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(service.ready.wait(), 30)
    first = service.pid
    assert first
    os.kill(first, 9)
    await condition(lambda: service.pid not in (None, first))
    last = service.pid
    assert log.states() == [("gateway", "running"), ("gateway", "stopped"), ("gateway", "running")]
    assert [said.outcome for said in log.said if isinstance(said, BootStepCompleted)] == ["ok"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await condition(lambda: not Path(f"/proc/{last}").exists())


async def test_a_service_that_is_not_installed_is_absent(log: Log, tmp_path: Path) -> None:
    service = Supervised(
        "gateway",
        module="valet_no_such_service",
        spec=b"{}",
        environment=ENVIRONMENT,
        folder=str(tmp_path),
        steps=log.steps,
        clock=time.monotonic,
    )
    await asyncio.wait_for(service.run(), 10)
    assert [said.outcome for said in log.said if isinstance(said, BootStepCompleted)] == ["absent"]


async def test_the_password_is_told_to_the_gateway_and_to_nobody_in_its_place(tmp_path: Path) -> None:
    heard: list[bytes] = []
    visits = asyncio.Queue[None]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        visits.put_nowait(None)

    path = f"{tmp_path}/c.sock"
    listener = await asyncio.start_unix_server(accept, path)
    pids = [1, os.getpid()]
    control = GatewayControl(path, pid=lambda: pids[0])
    running = asyncio.create_task(control.run())
    control.opencode("http://127.0.0.1:1", "Basic secret")
    await asyncio.wait_for(visits.get(), 10)
    assert heard == [b""]
    pids.pop(0)  # now it is the gateway's
    control.started()
    while not heard[-1]:
        await asyncio.wait_for(visits.get(), 10)
    assert heard[-1].startswith(b"PUT /opencode HTTP/1.1\r\n")
    assert b"Basic secret" in heard[-1]
    running.cancel()
    listener.close()
