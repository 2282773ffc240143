"""Claims about the life of a service process: real processes, real signals."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVICE = """
import asyncio
from valet_service import lifecycle, limits
from valet_service.errors import BadSettings
limits.STOP_GRACE = 0.3

async def main(settings, stop):
    lifecycle.ready()
    {body}
    print("stopped in order", flush=True)

lifecycle.run("sample", main)
"""


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    """The supervisor's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "n"))
        channel.settimeout(10)
        yield channel


def start(body: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE.format(body=body)],
        env={"PATH": os.environ["PATH"], "VALET_NATS_URL": "nats://127.0.0.1:1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_says_when_it_is_ready_and_stops_in_order_when_told(
    notified: socket.socket, number: signal.Signals
) -> None:
    process = start("await stop.wait()", NOTIFY_SOCKET=notified.getsockname())
    assert notified.recv(100) == b"READY=1"
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (out, process.returncode) == ("stopped in order\n", 0)


def test_a_service_that_does_not_stop_is_cancelled(notified: socket.socket) -> None:
    process = start("await asyncio.Event().wait()", NOTIFY_SOCKET=notified.getsockname())
    assert notified.recv(100) == b"READY=1"
    process.terminate()
    out, err = process.communicate(timeout=10)
    assert (out, process.returncode) == ("", 0)
    assert "stop_took_too_long" in err


def test_an_error_of_ours_ends_the_process_with_its_message_and_no_stack_trace() -> None:
    process = start("raise BadSettings('VALET_X is wrong')")
    out, err = process.communicate(timeout=10)
    assert (out, process.returncode) == ("", 1)
    assert "VALET_X is wrong" in err
    assert "Traceback" not in err


def test_a_missing_variable_ends_the_process_with_one_json_line() -> None:
    process = start("await stop.wait()", VALET_NATS_URL="")
    out, err = process.communicate(timeout=10)
    assert (out, process.returncode) == ("", 1)
    (line,) = err.splitlines()
    assert line.startswith("{")
    assert "VALET_NATS_URL is not set" in line


def test_a_bug_is_not_hidden() -> None:
    process = start("raise RuntimeError('a bug')")
    _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "RuntimeError: a bug" in err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_service_does_not_outlive_its_supervisor(notified: socket.socket) -> None:
    child = SERVICE.format(body="await stop.wait()")
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], stdout=1)",
            child,
        ],
        env={"VALET_NATS_URL": "nats://127.0.0.1:1", "NOTIFY_SOCKET": notified.getsockname()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert notified.recv(100) == b"READY=1"
    supervisor.kill()
    out, _ = supervisor.communicate(timeout=10)  # ends when the last holder of the pipe has
    assert out == "stopped in order\n"
