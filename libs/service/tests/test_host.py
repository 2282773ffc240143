"""Claims about several services in one process: a real process with two small services in it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from valet_service import host, settings
from valet_service.errors import BadSettings

SERVICE = """
import asyncio
from valet_service import lifecycle, logs

async def main(settings, stop):
    logs.get(__name__).warning("began", creds=settings.nats_creds)
    {body}
    await stop.wait()
    logs.get(__name__).warning("stopped in order")
"""


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    """The supervisor's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "n"))
        channel.settimeout(20)
        yield channel


def start(folder: Path, first: str, second: str) -> subprocess.Popen[str]:
    for name, body in (("one", first), ("two", second)):
        package = folder / f"sample_{name}"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "app.py").write_text(SERVICE.format(body=body))
    (folder / "creds").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "valet_service.host", "one=sample_one", "two=sample_two"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder),
            "VALET_NATS_URL": "nats://127.0.0.1:1",
            "VALET_NATS_CREDS": str(folder / "creds"),
            "NOTIFY_SOCKET": str(folder / "n"),
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(err: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in err.splitlines() if line.startswith("{")]


def test_it_is_ready_when_all_are_and_each_speaks_for_itself(notified: socket.socket, tmp_path: Path) -> None:
    late = "while not os.path.exists(settings.nats_creds + '.go'): await asyncio.sleep(0.01)\n    lifecycle.ready()"
    process = start(tmp_path, "lifecycle.ready()", f"import os; lifecycle.notify('WAITING=1')\n    {late}")
    assert notified.recv(100) == b"WAITING=1"
    notified.settimeout(0.3)
    with pytest.raises(TimeoutError):
        notified.recv(100)
    notified.settimeout(20)
    (tmp_path / "creds" / "two.creds.go").touch()
    assert notified.recv(100) == b"READY=1"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    said = {(line["service"], line["event"], line.get("creds")) for line in lines(err)}
    assert said == {
        (name, event, str(tmp_path / "creds" / f"{name}.creds") if event == "began" else None)
        for name in ("one", "two")
        for event in ("began", "stopped in order")
    }


def test_when_one_fails_the_others_stop_in_order_and_the_process_ends(notified: socket.socket, tmp_path: Path) -> None:
    failing = "from valet_service.errors import BadSettings\n    raise BadSettings('VALET_X is wrong')"
    process = start(tmp_path, "pass", failing)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    found = lines(err)
    assert ("one", "stopped in order") in {(line["service"], line["event"]) for line in found}
    assert [line["reason"] for line in found if line["event"] == "stopped"] == ["VALET_X is wrong"]
    assert "Traceback" not in err


def test_one_that_does_not_stop_is_cancelled_with_the_process(notified: socket.socket, tmp_path: Path) -> None:
    stubborn = "from valet_service import limits; limits.STOP_GRACE = 0.3; lifecycle.ready()"
    process = start(tmp_path, f"{stubborn}\n    await asyncio.Event().wait()", "lifecycle.ready()")
    assert notified.recv(100) == b"READY=1"
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert {line["event"] for line in lines(err)} == {"began", "stopped in order", "stop_took_too_long"}


def test_a_file_of_credentials_is_refused_where_each_service_needs_its_own(tmp_path: Path) -> None:
    (tmp_path / "x.creds").touch()
    environment = {"VALET_NATS_URL": "nats://127.0.0.1:1", "VALET_NATS_CREDS": str(tmp_path / "x.creds")}
    with pytest.raises(BadSettings, match="name the directory"):
        host.own_settings(settings.load(environment), "one")
    anonymous = settings.load({"VALET_NATS_URL": "nats://127.0.0.1:1"})
    assert host.own_settings(anonymous, "one") == anonymous


def test_nothing_to_run_is_said() -> None:
    for arguments in ([], ["knowledge"], ["=x"]):
        with pytest.raises(SystemExit, match="knowledge=valet_knowledge"):
            host.main(arguments)


async def test_what_one_raises_reaches_whoever_runs_them() -> None:
    async def fails(_: settings.Settings, stop: asyncio.Event) -> None:
        raise RuntimeError("a bug")

    async def serves(_: settings.Settings, stop: asyncio.Event) -> None:
        await stop.wait()

    stop = asyncio.Event()
    loaded = settings.load({"VALET_NATS_URL": "nats://127.0.0.1:1"})
    with pytest.raises(RuntimeError, match="a bug"):
        await host.together({"serves": serves, "fails": fails}, loaded, stop)
    assert stop.is_set()
