"""Claims about the sandbox image, as far as they can be judged without building it."""

import re
import subprocess
from pathlib import Path

import pytest
from valet_runner import optional_services
from valet_runner.optional_services import PORTS, Name

IMAGE = Path(__file__).parents[2] / "sandbox-image"
START_TIMEOUT = 20.0
"""Seconds for a shell script that refuses at once."""

ELSEWHERE = {"code-server": "/usr/local/bin/code-server", "ttyd": "fetch_terminal_page.py"}
"""What no Debian package brings and what in the Dockerfile does; the platform's own page is there for `ttyd`."""


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (IMAGE / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def packages(dockerfile: str) -> set[str]:
    """The Debian packages of the last stage."""
    installed = re.search(r"apt-get install (.*?)\$\{EXTRA_PACKAGES\}", dockerfile.rpartition("\nFROM ")[2], re.DOTALL)
    assert installed
    return set(re.findall(r"[a-z0-9][a-z0-9.+-]+", installed[1]))


@pytest.mark.parametrize("name", PORTS)
def test_every_program_the_boot_looks_for_is_installed(name: Name, dockerfile: str, packages: set[str]) -> None:
    for program in optional_services.missing(name, lambda _: None):
        assert program.lower() in packages or ELSEWHERE[program] in dockerfile, program


def test_every_program_the_image_itself_runs_is_installed(dockerfile: str, packages: set[str]) -> None:
    assert "exec tini " in (IMAGE / "start.sh").read_text()
    assert "CMD curl " in dockerfile
    assert {"tini", "curl", "bubblewrap", "git", "ripgrep", "procps", "novnc"} <= packages


def test_the_image_can_be_built_without_buildkit(dockerfile: str) -> None:
    assert not re.search(r"--(chmod|mount|link|start-interval)=|<<", dockerfile)


def test_a_sandbox_without_a_spec_says_what_is_missing() -> None:
    started = subprocess.run(
        ["bash", str(IMAGE / "start.sh")],
        env={"PATH": "/usr/bin:/bin", "VALET_RUNNER_SPEC": "/nowhere/runner.json"},
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert started.returncode == 66
    assert "/nowhere/runner.json cannot be read" in started.stderr
