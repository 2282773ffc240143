"""Which process is meant: a pid together with its start time, because pids are used again."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from valet_local import limits


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A process that cannot be mistaken for another."""

    pid: int
    start_time: int
    """Linux: clock ticks since boot, field 22 of /proc/<pid>/stat. Elsewhere: milliseconds since 1970."""


def identify(pid: int) -> Identity | None:
    """The identity of a running process; None when it has ended (a zombie has)."""
    started = _start_time(pid)
    return None if started is None else Identity(pid=pid, start_time=started)


def is_alive(process: Identity) -> bool:
    """Whether that very process still runs."""
    return _start_time(process.pid) == process.start_time


def send(process: Identity, number: signal.Signals, *, group: bool = False) -> None:
    """Signal a process, or with `group` its whole group; nothing when it has ended already."""
    if not is_alive(process):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)


def end(processes: Iterable[Identity], *, grace: float, first: signal.Signals = signal.SIGTERM) -> int:
    """End processes that are not our children: `first`, then SIGKILL after `grace` seconds. Returns how many
    lived.
    """
    living = [process for process in processes if is_alive(process)]
    count = len(living)
    for number, seconds in ((first, grace), (signal.SIGKILL, limits.KILL_WAIT)):
        for process in living:
            send(process, number, group=number is signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while living and time.monotonic() < deadline:
            time.sleep(limits.POLL)
            living = [process for process in living if is_alive(process)]
    return count


def working_in(directory: Path) -> list[Identity]:
    """Processes whose working directory is this one, also when they see it under another name (a mount
    namespace).

    PostgreSQL's processes all work in the data directory: this finds the backends of a dead postmaster. Linux
    only; elsewhere nothing is found, and PostgreSQL itself refuses to start beside its remains.
    """
    if sys.platform != "linux":
        return []
    try:
        wanted = directory.stat()
    except FileNotFoundError:
        return []
    found: list[Identity] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            here = os.stat(f"/proc/{entry.name}/cwd")
        except OSError:
            continue
        if (here.st_dev, here.st_ino) == (wanted.st_dev, wanted.st_ino):
            process = identify(int(entry.name))
            if process is not None:
                found.append(process)
    return found


def tree(root: Identity) -> list[Identity]:
    """A process and all its living descendants."""
    import psutil  # at a stop only: it would stay in memory

    try:
        pids = [root.pid, *(child.pid for child in psutil.Process(root.pid).children(recursive=True))]
    except psutil.Error:
        return [root]
    return [process for process in map(identify, pids) if process is not None]


def _start_time(pid: int) -> int | None:
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        # The second field is the name in parentheses and may hold anything.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    import psutil  # elsewhere only

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time() * 1000)
    except psutil.Error:
        return None
