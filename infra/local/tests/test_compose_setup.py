"""Claims about the set-up step of a container installation and about what starts a service in a container."""

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from valet_local import compose, container, keys, nats
from valet_local.errors import BadDataDir
from valet_local.layout import Layout, layout
from valet_local.plan import SERVICE_MODULES

TIMEOUT = 20.0
"""Seconds for a child process on a busy machine."""


@pytest.fixture
def places(tmp_path: Path) -> Layout:
    return layout(tmp_path / "data")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "servers"
    path.mkdir()
    return path


def test_running_it_again_changes_no_secret(places: Layout, volume: Path) -> None:
    def secrets() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in places.keys.iterdir() if path.is_file()}

    compose.set_up(places, volume)
    first, password = secrets(), compose.servers(volume).postgres_password.read_text()
    compose.set_up(places, volume)
    assert secrets() == first
    assert compose.servers(volume).postgres_password.read_text() == password


def test_services_alone_read_the_keys_and_the_servers_users_read_their_files(places: Layout, volume: Path) -> None:
    written = compose.set_up(places, volume)
    assert stat.S_IMODE(places.keys.stat().st_mode) == 0o700
    # PostgreSQL's clients ignore a password file that others could read
    assert stat.S_IMODE(compose.pgpass(places).stat().st_mode) == 0o600
    for path in (written.nats_config, written.postgres_password):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_client_s_password_is_the_server_s(places: Layout, volume: Path) -> None:
    written = compose.set_up(places, volume)
    fields = compose.pgpass(places).read_text().strip().split(":")
    assert fields == ["*", "*", "*", "valet", written.postgres_password.read_text()]


def test_the_server_takes_the_configuration(places: Layout, volume: Path) -> None:
    written = compose.set_up(places, volume)
    done = subprocess.run(
        [nats.find_binary(), "-t", "-c", written.nats_config],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = written.nats_config.read_text()
    assert keys.ensure(places).trust.valet.public in text
    for seed in places.keys.glob("*.seed"):
        assert seed.read_text().strip() not in text


def test_a_wrong_configuration_file_is_refused_with_its_line(
    places: Layout, volume: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "valet.toml"
    wrong.write_text("# first\n[sandbox]\nmemry_mb = 1\n")
    environment = {
        "VALET_DATA_DIR": str(places.data),
        "VALET_SERVERS_DIR": str(volume),
        "VALET_CONFIG": str(wrong),
    }
    assert compose.main(environment) == 1
    assert f"{wrong}:3: unknown key 'memry_mb'" in capsys.readouterr().err


def test_a_volume_that_cannot_be_written_is_named(places: Layout, tmp_path: Path) -> None:
    with pytest.raises(BadDataDir, match="servers"):
        compose.set_up(places, tmp_path / "servers")


@pytest.fixture
def channel(tmp_path: Path) -> str:
    return str(tmp_path / "n")


def test_ready_becomes_a_file_and_nothing_else_does(tmp_path: Path, channel: str) -> None:
    file = tmp_path / "ready"
    file.touch()
    container.note_readiness(file, channel)
    assert not file.exists(), "the readiness of an earlier start still counts"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.sendto(b"STATUS=starting", channel)
        service.sendto(b"READY=1", channel)
    deadline = time.monotonic() + TIMEOUT
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_service_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=", ".join(name for name, _ in SERVICE_MODULES)):
        container.main(["ledger"], {})


def test_the_service_takes_the_process_and_says_what_it_lacks(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VALET_")}
    child = subprocess.run(
        [sys.executable, "-m", "valet_local.container", "portal"],
        env={**environment, "VALET_DATA_DIR": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert child.returncode == 1
    assert "VALET_NATS_URL is not set" in child.stderr
