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

import msgspec
import pytest
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import BootStepCompleted, ServiceChanged
from valet_runner import connections, door, limits, on_demand, optional_services
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
async def opened(
    log: Log, folder: Path, prepare: Callable[[], Recipe], *, booted: bool = True
) -> AsyncIterator[tuple[OnDemand, list[int]]]:
    """A service behind its door, and where the gateway was told it is."""
    leads: list[int] = []
    service = OnDemand(
        "vscode",
        title="The editor",
        listener=on_demand.listen(on_demand.free_port()),
        prepare=prepare,
        environment=ENVIRONMENT,
        folder=str(folder),
        steps=log.steps,
        clock=time.monotonic,
        leads_to=leads.append,
    )
    if booted:
        service.open()
    running = asyncio.create_task(service.run())
    try:
        yield service, leads
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


PAGE = b"Accept: text/html,*/*\r\n"


async def get(port: int, fields: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.0\r\n" + fields + b"\r\n")
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
        assert b"200 OK" in await get(service.door)
        assert log.states() == [("vscode", "running")]
        assert leads == [await service.start()]
        processes = list(service._running)
        processes[0].kill()  # one of its programs
        await condition(lambda: log.states()[-1] == ("vscode", "stopped"))
        assert leads[-1] == service.door
        assert all(process.returncode is not None for process in processes)
        assert b"200 OK" in await get(service.door)
        assert log.states()[-1] == ("vscode", "running")
        last = list(service._running)
    assert all(process.returncode is not None for process in last)


async def test_who_comes_before_the_boot_is_over_is_told_so_and_starts_nothing(log: Log, tmp_path: Path) -> None:
    async with opened(log, tmp_path, server(tmp_path), booted=False) as (service, leads):
        for fields in (PAGE, b"", b"Upgrade: websocket\r\n"):
            early = await get(service.door, fields)
            assert early.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nX-Valet-Door: starting\r\nRetry-After: 2\r\n" in early
            assert b"still booting" in early
        assert leads == []
        service.open()
        assert b"200 OK" in await get(service.door, PAGE)


async def test_a_page_is_told_of_a_slow_start_and_a_program_waits_for_it(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOOR_PATIENCE", 0.01)
    go = tmp_path / "go"

    def prepare() -> Recipe:
        made = server(tmp_path)()
        *first, last = made.programs
        wait = f'until [ -e {go} ]; do sleep 0.05; done; exec "$@"'
        slow = Program(command=("sh", "-c", wait, "sh", *last.command), listens=last.listens)
        return Recipe(name="vscode", programs=(*first, slow), port=made.port)

    async with opened(log, tmp_path, prepare) as (service, _):
        program = asyncio.create_task(get(service.door))
        for _ in range(2):
            page = await get(service.door, PAGE)
            assert b"\r\nX-Valet-Door: starting\r\n" in page
            assert b"The editor is starting" in page
        assert not program.done()
        go.touch()
        assert b"200 OK" in await program
        assert log.states() == [("vscode", "running")]


async def test_a_service_that_cannot_start_says_why_and_turns_visitors_away(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ON_DEMAND_PAUSE", 600.0)
    tries: list[int] = []

    def prepare() -> Recipe:
        tries.append(1)
        broken = Program(command=("bash", "-c", "echo no display >&2; exit 4"), listens=on_demand.free_port())
        return Recipe(name="vscode", programs=(broken,), port=1)

    async with opened(log, tmp_path, prepare) as (service, _):
        answers = [await get(service.door, fields) for fields in (b"", PAGE, b"")]
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nX-Valet-Door: failed\r\n" in answer
        assert b"no display" in answer
    assert len(tries) == 1
    assert log.states() == [("vscode", "stopped")]


async def test_a_service_without_visitors_is_ended_but_never_while_one_is_connected(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNUSED_POLL", 0.02)
    monkeypatch.setattr(limits, "UNUSED_LAST_LOOK", 0.02)
    looks: list[int | None] = []
    count = connections.to

    def look(port: int) -> int | None:
        looks.append(count(port))
        return looks[-1]

    monkeypatch.setattr(connections, "to", look)

    def prepare() -> Recipe:
        return msgspec.structs.replace(server(tmp_path)(), unused=0.1)

    async with opened(log, tmp_path, prepare) as (service, leads):
        port = await service.start()
        _, visitor = await asyncio.open_connection("127.0.0.1", port)
        looks.clear()
        await condition(lambda: len(looks) > 20)  # more than the time without visitors it is allowed
        assert set(looks[2:]) == {1}
        assert log.states() == [("vscode", "running")]
        visitor.close()
        await condition(lambda: log.states()[-1] == ("vscode", "stopped"))
        assert leads[-1] == service.door
        assert b"200 OK" in await get(service.door)


def test_connections_are_those_that_are_established_to_the_port_here() -> None:
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:223D 0100007F:E0A2 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:E0A2 0100007F:223D 01 00000000:00000000 00:00000000 00000000     0        0 3 1
   3: 0100007F:223D 0100007F:E0A4 06 00000000:00000000 00:00000000 00000000     0        0 0 3
"""
    assert connections.count(table, 8765) == 1
    assert connections.count(table, 8766) == 0


@pytest.mark.parametrize(
    ("fields", "page"),
    [
        (b"Accept: text/html,application/xhtml+xml", True),
        (b"Accept: text/html\r\nSec-Fetch-Dest: script", False),
        (b"Accept: */*\r\nsec-fetch-dest: iframe", True),
        (b"Accept: text/html\r\nUpgrade: websocket", False),
        (b"Accept: */*", False),
    ],
)
def test_a_page_is_what_a_browser_shows_to_a_person(fields: bytes, page: bool) -> None:
    assert door.is_page(b"GET /vscode/ HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n\r\n") is page


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


def test_a_program_whose_link_leads_out_of_the_sandbox_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "code-server").symlink_to("/opt/nowhere/code-server")
    search = f"/nonexistent:{tmp_path}"
    said = optional_services.why_missing("code-server", search)
    assert (
        said == f"code-server ({tmp_path}/code-server leads to /opt/nowhere/code-server, which is not in the sandbox)"
    )
    assert optional_services.why_missing("ttyd", search) == "ttyd"


def test_a_persons_own_settings_of_the_editor_stay(tmp_path: Path) -> None:
    optional_services.settle("vscode", home=str(tmp_path))
    settings = tmp_path / ".local" / "share" / "code-server" / "User" / "settings.json"
    assert "disableAIFeatures" in settings.read_text()
    settings.write_text("{}")
    optional_services.settle("vscode", home=str(tmp_path))
    assert settings.read_text() == "{}"


def test_a_desktop_is_offered_only_where_all_of_its_programs_are(tmp_path: Path) -> None:
    def without_fluxbox(name: str) -> str | None:
        return None if name == "fluxbox" else f"/usr/bin/{name}"

    assert optional_services.missing("vnc", without_fluxbox) == ["fluxbox"]
    assert optional_services.display(without_fluxbox) is None
    assert optional_services.display(lambda name: name, novnc=str(tmp_path)) == ":99"
    ports = itertools.count(5000)
    recipe = optional_services.recipe(
        "vnc", find=lambda name: f"/usr/bin/{name}", free_port=lambda: next(ports), home="/h", workspace="/w"
    )
    assert recipe.programs[-1].listens == recipe.port
    assert recipe.unused is None  # the agent's programs draw on it too
    assert optional_services.missing("vnc", lambda name: name, novnc="/nonexistent") == ["novnc"]


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
