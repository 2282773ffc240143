"""Claims about a whole platform on one data directory: the real command, real servers, no services.

The services have tests of their own; what is held here is what the platform promises whatever runs on it.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import msgspec
import psutil
import pytest
from valet_local import identity, launch, leftovers, postgres, tools
from valet_local.assembly import Options
from valet_local.errors import LocalError, NotRunning
from valet_local.identity import Identity, identify, is_alive
from valet_local.launch import Platform
from valet_local.layout import Layout, layout
from valet_local.leftovers import Recorded
from valet_local.state import running

VALET = Path(sys.executable).parent / "valet"


def data_dir(tmp_path: Path) -> Path:
    """OpenCode is not run here: the directory gets a script in its place, so that nothing is fetched."""
    places = layout(tmp_path / "d")
    path = tools.cached_opencode(places.tools, tools.opencode_package())
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return places.data


def options(data: Path, **more: object) -> Options:
    return Options(data_dir=data, port=0, services=(), **more)  # type: ignore[arg-type]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    path = data_dir(tmp_path)
    yield path
    places = layout(path)
    with contextlib.suppress(NotRunning):
        launch.stop(path)
    shutil.rmtree(places.run, ignore_errors=True)


def until(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def recorded(places: Layout) -> dict[str, Identity]:
    processes = msgspec.json.decode(places.processes.read_bytes(), type=list[Recorded])
    return {one.name: Identity(pid=one.pid, start_time=one.start_time) for one in processes}


def everything(platform: Platform) -> list[Identity]:
    """The platform's process and all below it."""
    root = identify(platform.state.pid)
    assert root is not None
    return identity.tree(root)


def query(places: Layout, words: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(postgres.url(places.run / "postgres"), timeout=10)
        try:
            return await connection.fetchval(words)
        finally:
            await connection.close()

    return asyncio.run(ask())


def events(places: Layout, process: str, event: str) -> int:
    lines = (places.logs / "supervisor.log").read_text().splitlines()
    return sum(1 for line in map(json.loads, lines) if (line["process"], line["event"]) == (process, event))


def test_ready_means_a_private_file_that_says_how_to_reach_it(data: Path) -> None:
    with launch.start(options(data)) as platform:
        path = platform.places.state
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        said = json.loads(path.read_bytes())
        assert {"url", "token", "nats_url", "pid"} <= said.keys()
        port = int(said["nats_url"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            assert connection.recv(64).startswith(b"INFO ")
        assert running(platform.places) == platform.state
    assert not path.exists()


def test_stop_ends_every_process_within_ten_seconds_and_a_new_start_finds_everything(data: Path) -> None:
    with launch.start(options(data)) as first:
        processes = everything(first)
        assert len(processes) >= 3
        query(first.places, "CREATE TABLE kept AS SELECT 42 AS n")
        began = time.monotonic()
    assert time.monotonic() - began < 10.0
    assert not any(is_alive(process) for process in processes)
    with launch.start(options(data)) as second:
        assert query(second.places, "SELECT n FROM kept") == 42
        assert second.state.token == first.state.token
        assert second.state.nats_url == first.state.nats_url


def test_a_second_up_says_which_process_holds_the_directory(data: Path) -> None:
    with launch.start(options(data)) as platform:
        second = subprocess.run(
            [VALET, "up", "--data-dir", data, "--port", "0"], capture_output=True, text=True, timeout=60
        )
        assert second.returncode == 1
        assert f"process {platform.state.pid}" in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize("victim", ["nats", "postgres"])
def test_a_killed_server_is_back_within_five_seconds(data: Path, victim: str) -> None:
    with launch.start(options(data)) as platform:
        before = recorded(platform.places)[victim]
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: events(platform.places, victim, "ready") == 2, timeout=5.0)
        assert recorded(platform.places)[victim] != before
        assert query(platform.places, "SELECT 1") == 1


def test_after_kill_9_of_the_supervisor_nothing_stays_and_the_next_start_works(data: Path) -> None:
    platform = launch.start(options(data))
    query(platform.places, "CREATE TABLE kept AS SELECT 42 AS n")
    processes = everything(platform)
    os.kill(platform.state.pid, signal.SIGKILL)
    until(lambda: not any(is_alive(process) for process in processes))
    platform.stop()
    assert running(platform.places) is None
    with launch.start(options(data)) as second:
        assert query(second.places, "SELECT n FROM kept") == 42


def test_a_platform_started_for_the_duration_ends_with_who_started_it(data: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from valet_local import launch; "
        "from valet_local.assembly import Options; "
        "p = launch.start(Options(data_dir=Path(sys.argv[1]), port=0, services=())); "
        "print(p.state.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, data], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    process = identify(int(done.stdout))
    until(lambda: process is None or not is_alive(process))
    assert running(layout(data)) is None


def test_up_and_down_are_commands(data: Path) -> None:
    up = subprocess.Popen(
        [VALET, "up", "--data-dir", data, "--port", "0", "--services", ""], stdout=subprocess.PIPE, text=True
    )
    try:
        assert up.stdout is not None
        lines: list[str] = []
        while not any("token" in line for line in lines):
            line = up.stdout.readline()
            assert line, "valet up ended"
            lines.append(line)
        said = "".join(lines)
        assert re.search(r"ready at http://127\.0\.0\.1:\d+", said)
        assert json.loads((data / "valet.json").read_bytes())["token"] in said
        down = subprocess.run(
            [VALET, "down", "--data-dir", data], capture_output=True, text=True, timeout=30, check=False
        )
        assert (down.returncode, down.stdout) == (0, "Stopped.\n")
        assert up.wait(5) == 0
    finally:
        if up.poll() is None:
            up.kill()
        up.wait()


def test_down_with_nothing_running_says_so(data: Path) -> None:
    down = subprocess.run([VALET, "down", "--data-dir", data], capture_output=True, text=True, timeout=30)
    assert (down.returncode, down.stdout) == (0, "Valet is not running.\n")


def test_a_wrong_configuration_is_refused_with_its_line(data: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("\n[sandbox]\nmemory = 1\n")
    up = subprocess.run(
        [VALET, "up", "--data-dir", data, "--config", wrong], capture_output=True, text=True, timeout=30
    )
    assert up.returncode == 1
    assert up.stderr.startswith(f"error: {wrong}:3: unknown key 'memory'")


def test_a_used_port_is_named(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        wanted = Options(data_dir=data, port=port, services=())
        with pytest.raises(LocalError, match=f"port {port} .* is in use by process {os.getpid()}"):
            launch.start(wanted)


def test_an_old_nats_server_is_named_at_start(data: Path, tmp_path: Path) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.10.22'\n")
    old.chmod(0o755)
    with pytest.raises(LocalError, match=r"2\.10\.22; Valet needs 2\.12"):
        launch.start(options(data), environment={**os.environ, "NATS_BIN": str(old)})


def test_the_supervisor_itself_is_small_and_idle(data: Path) -> None:
    with launch.start(options(data)) as platform:
        process = psutil.Process(platform.state.pid)
        assert process.memory_info().rss < 45 << 20
        before = process.cpu_times()
        until(lambda: time.time() - process.create_time() > 3, timeout=10)
        after = process.cpu_times()
        assert (after.user + after.system) - (before.user + before.system) < 0.06


def test_doctor_finds_this_machine_fit(data: Path) -> None:
    done = subprocess.run([VALET, "doctor", "--data-dir", data], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    for name in ("Python", "git", "ripgrep", "bubblewrap", "Disk", "NATS server", "PostgreSQL", "OpenCode"):
        assert re.search(rf"^ok +{name}", done.stdout, re.MULTILINE), done.stdout


def test_doctor_fails_when_something_needed_is_missing(data: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "NATS_BIN": "/no/such/server"}
    done = subprocess.run(
        [VALET, "doctor", "--data-dir", data], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 1
    assert re.search(r"^MISS git: missing\n +git is missing\. Install it", done.stdout, re.MULTILINE)
    assert re.search(r"^MISS NATS server", done.stdout, re.MULTILINE)


def test_leftovers_of_an_unknown_shape_do_not_stop_a_start(data: Path) -> None:
    places = layout(data)
    places.data.mkdir(exist_ok=True)
    places.processes.write_text('[{"name": "na')
    assert leftovers.end_processes(places) == 0
