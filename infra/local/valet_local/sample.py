"""The demo's repository: a small git repository with one failing test, made from the package's files."""

import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from valet_local import limits
from valet_local.errors import ToolError

_SUFFIX = ".sample"
"""Keeps the files from being taken for code or tests of ours."""

_ENVIRONMENT = {
    # One identity and one date: the sample has the same commit id on every machine, whatever git is told there.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Valet demo",
    "GIT_AUTHOR_EMAIL": "demo@valet.invalid",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Valet demo",
    "GIT_COMMITTER_EMAIL": "demo@valet.invalid",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


def make(path: Path, git: Path) -> None:
    """A fresh sample repository at `path`, replacing what is there. Raises `ToolError` with git's own words."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for file in resources.files("valet_local").joinpath("sample_repo").iterdir():
        if file.name.endswith(_SUFFIX):
            (path / file.name.removesuffix(_SUFFIX)).write_bytes(file.read_bytes())
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "A calculator")):
        _run(git, path, words)


def _run(git: Path, path: Path, words: tuple[str, ...]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, "-C", path, *words],
            env=environment | _ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limits.PROBE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"git {words[0]} in {path} did not end within {limits.PROBE_TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise ToolError(f"git {words[0]} in {path} failed: {done.stderr.strip()}")
