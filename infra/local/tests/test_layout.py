"""Claims about the data directory: its lock, its socket directory, and what makes it unusable."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from valet_local import keys, layout, limits, lock, log_files, ports
from valet_local.errors import AlreadyRunning, BadAddress, BadDataDir, PortInUse


def test_a_second_holder_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "valet.lock"
    code = f"from pathlib import Path; from valet_local import lock; lock.acquire(Path({str(path)!r}))"
    with lock.acquire(path):
        assert lock.holder(path) == os.getpid()
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
        assert f"process {os.getpid()}" in second.stderr
        with pytest.raises(AlreadyRunning) as caught:
            lock.acquire(path)
        assert caught.value.pid == os.getpid()
    assert lock.holder(path) is None


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "valet.lock"
    code = f"import os, pathlib; from valet_local import lock; lock.acquire(pathlib.Path({str(path)!r})); os.abort()"
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    lock.acquire(path).release()


def test_where_no_short_directory_is_to_be_had_it_says_what_to_shorten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(long))
    with pytest.raises(BadDataDir, match="TMPDIR"):
        layout.prepare(layout.layout(long / "d"))


def test_a_long_data_directory_gets_a_short_private_directory_for_sockets(tmp_path: Path) -> None:
    places = layout.layout(tmp_path / ("long" * 20))
    layout.prepare(places)
    try:
        assert len(os.fsencode(places.run)) <= limits.UNIX_PATH_LONGEST
        assert places.run.stat().st_mode & 0o066 == 0
    finally:
        subprocess.run(["rm", "-rf", places.run], check=True)


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    with pytest.raises(BadDataDir, match="cannot write"):
        layout.prepare(layout.layout(tmp_path / "d"))


def test_secrets_stay_the_same_and_are_readable_by_nobody_else(tmp_path: Path) -> None:
    places = layout.layout(tmp_path / "d")
    layout.prepare(places)
    first = keys.ensure(places, now=lambda: 1_000.0)
    assert keys.ensure(places, now=lambda: 1_000.0) == first
    assert len((places.keys / "secret").read_bytes()) == 32
    for path in places.keys.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_used_port_is_named_with_its_holder() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {port} .* process {os.getpid()}"):
            ports.choose(port)
    assert ports.choose(0) > 0


def test_an_address_of_another_machine_is_refused_with_the_reason() -> None:
    for port in (0, 8700):
        with pytest.raises(BadAddress, match=r"cannot listen on 192\.0\.2\.1 .*assign"):
            ports.choose(port, "192.0.2.1")


def test_a_log_over_its_cap_is_moved_aside_while_it_is_written(tmp_path: Path) -> None:
    with log_files.open_log(tmp_path, "api") as log:
        log.write(b"old line\n" * 10)
        log_files.trim(tmp_path, cap=50)
        log.write(b"new line\n")
    assert (tmp_path / "api.log").read_bytes() == b"new line\n"
    assert (tmp_path / "api.log.1").read_bytes() == b"old line\n" * 10


def test_what_is_shown_of_a_log_is_the_reason_and_no_stack_trace(tmp_path: Path) -> None:
    with log_files.open_log(tmp_path, "api") as log:
        log.write(b'{"event":"serving","level":"info"}\n')
        log.write(b'{"event":"stopped","level":"error","reason":"VALET_NATS_URL is not set"}\n' * 3)
        log.write(b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no\n')
    assert log_files.last_words(tmp_path, "api") == "stopped: VALET_NATS_URL is not set\nValueError: no"
    assert log_files.last_words(tmp_path, "nothing") == ""
