"""Claims about `valet bench` as a command. Everything it measures is real; nothing is said about how fast it is."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

VALET = str(Path(sys.executable).with_name("valet"))
WITHIN = 120
"""Seconds: ten on an idle machine."""


def bench(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [VALET, "bench", *words],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory for temporary files whose path leaves room for the sockets below it, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="vb-", dir="/tmp") as path:
        yield Path(path)


def test_a_quick_run_reports_every_figure_beside_its_floor_and_leaves_nothing_behind(
    tmp_path: Path, short: Path
) -> None:
    file = tmp_path / "report.json"
    done = bench("--quick", "--only", "c,d", "--json", str(file), folder=short)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert report["failures"] == []
    assert report["quick"] is True
    assert {line["bench"] for line in report["lines"]} == {"c", "d"}
    for line in report["lines"]:
        assert line["value"] > 0
        assert line["floor"] > 0
        assert line["ratio"] > 0
        assert line["aim"]
        assert line["met"] is None
        assert line["name"] in done.stdout
    assert report["machine"]["cpus"] >= 1
    assert list(short.iterdir()) == []
    assert [process.pid for process in psutil.process_iter(["cmdline"]) if _below(short, process)] == []


def test_a_benchmark_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = bench("--only", "c,z", folder=tmp_path)
    assert done.returncode == 1
    assert "no benchmark z" in done.stderr
    assert "Traceback" not in done.stderr


def _below(folder: Path, process: psutil.Process) -> bool:
    return any(str(folder) in word for word in process.info["cmdline"] or [])
