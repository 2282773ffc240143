"""What the processes of a platform use."""

import msgspec
import psutil

from valet_local.layout import Layout
from valet_local.leftovers import Recorded


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Of one server or service, with all its processes."""

    memory_mb: float
    """Resident; what processes share is counted once (PSS)."""
    cpu_seconds: float
    """Since they started."""


def used(places: Layout) -> dict[str, Used]:
    """Process of the supervisor → what it uses now."""
    recorded = msgspec.json.decode(places.processes.read_bytes(), type=list[Recorded])
    return {process.name: _of(process.pid) for process in recorded}


def _of(pid: int) -> Used:
    root = psutil.Process(pid)
    ended = root.cpu_times()
    memory, seconds = 0.0, ended.children_user + ended.children_system
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
            memory += process.memory_full_info().pss / (1 << 20)
            seconds += times.user + times.system
        except psutil.NoSuchProcess:
            continue  # a database connection that has just ended: its time is its parent's now
    return Used(memory_mb=memory, cpu_seconds=seconds)
