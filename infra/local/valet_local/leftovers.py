"""What a crash or an unfinished stop left behind: found by recorded pids, ended."""

import signal
from pathlib import Path
from typing import TypeVar

import msgspec

from valet_local import identity, limits
from valet_local.files import read_if_there
from valet_local.identity import Identity
from valet_local.layout import Layout

T = TypeVar("T")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the platform, as the supervisor wrote it down."""

    name: str
    pid: int
    start_time: int
    stop_signal: int


class RecordedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What the sandbox controller writes for each sandbox it has started."""

    pid: int
    start_time: int
    """As in `identity.Identity`."""


def end_processes(places: Layout) -> int:
    """End the platform's processes that a dead supervisor left. Returns how many there were.

    Only for the holder of the lock. Sandboxes are left alone: the sandbox controller takes them up again.
    """
    recorded = _decode(places.processes, list[Recorded]) or []
    count = 0
    for kind in (signal.SIGTERM, signal.SIGINT):
        members = [
            Identity(pid=process.pid, start_time=process.start_time)
            for process in recorded
            if process.stop_signal == kind
        ]
        count += identity.end(members, grace=limits.SERVER_GRACE, first=kind)
    places.processes.unlink(missing_ok=True)
    return count


def end_sandboxes(places: Layout) -> int:
    """The last resort of an orderly stop: kill every sandbox that is still recorded, with all its
    descendants.
    """
    count = 0
    for path in sorted(places.sandboxes.glob("*.json")):
        recorded = _decode(path, RecordedSandbox)
        if recorded is not None:
            root = Identity(pid=recorded.pid, start_time=recorded.start_time)
            if identity.is_alive(root):
                count += identity.end(identity.tree(root), grace=0.0, first=signal.SIGKILL)
        path.unlink(missing_ok=True)
    return count


def _decode(path: Path, kind: type[T]) -> T | None:
    content = read_if_there(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        return None  # cut short by a crash; what it named cannot be known any more
