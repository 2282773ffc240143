"""Claims about starting the API: what is wrong is said in a sentence, without a stack trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def start(tmp_path: Path, **environ: str) -> str:
    """What a process that must not start says."""
    (tmp_path / "keys").mkdir(exist_ok=True)
    (tmp_path / "keys" / "secret").write_bytes(b"s" * 32)
    result = subprocess.run(
        [sys.executable, "-m", "valet_api"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("VALET_")},
            "VALET_NATS_URL": "nats://127.0.0.1:9",
            "VALET_DATA_DIR": str(tmp_path),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in start(tmp_path, VALET_API_PORT=str(port))


@pytest.mark.parametrize("content", [None, "short"])
def test_an_unusable_token_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    assert str(path) in start(tmp_path, VALET_ADMIN_TOKEN_FILE=str(path))


def test_a_wrong_configuration_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "valet.toml"
    path.write_text('default_model = "a/b"\nnonsense = 1\n')
    assert f"{path}:2" in start(tmp_path, VALET_CONFIG=str(path))
