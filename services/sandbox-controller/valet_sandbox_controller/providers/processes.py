"""Processes that may not be our children: found again, watched and signalled without mistaking one for another."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path


def start_time(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Clock ticks since boot at which the process started; none when there is no such process, or only its zombie."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether that very process still runs."""
    return pid > 0 and start_time(pid) == started


def children(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The direct children of a process."""
    try:
        return [int(child) for child in (proc / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:  # it ended, or a kernel without this file: look at everybody
        found: list[int] = []
        for entry in proc.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError):
                    if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(entry.name))
        return found


def descendants(pid: int) -> list[tuple[int, int]]:
    """All that a process has started and what those have, as pairs (pid, start time); whatever group they moved to."""
    found: list[tuple[int, int]] = []
    for child in children(pid):
        started = start_time(child)
        if started is not None:
            found += [(child, started), *descendants(child)]
    return found


def with_variable(name: str, value: str) -> list[tuple[int, int]]:
    """All processes that have this environment variable, as pairs (pid, start time): the inherited mark of whoever
    started them, which stays when their parent ends."""
    mark = f"{name}={value}".encode()
    found: list[tuple[int, int]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    started = start_time(int(entry.name))
                    if started is not None:
                        found.append((int(entry.name), started))
    return found


def command_line(pid: int) -> list[str]:
    """Its arguments; empty when it ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(pid: int, started: int, number: signal.Signals) -> bool:
    """Signal that very process. False when it has ended already."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # the handle is to whatever has the pid now; only then is the comparison free of a race
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


async def ended(pid: int, started: int) -> None:
    """Return when that very process has ended: the kernel says so at once, nothing is polled."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    try:
        if start_time(pid) != started:
            return
        loop.add_reader(handle, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
