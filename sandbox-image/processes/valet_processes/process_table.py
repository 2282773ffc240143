"""The kernel's table of processes: who belongs to whom (from /proc; empty where there is none)."""

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    pid: int
    zombie: bool
    parent: int
    group: int
    session: int


def rows() -> list[Row]:
    """Every process there is."""
    found: list[Row] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read()
        except OSError:  # it is gone
            continue
        # pid (name) state parent group session …; the name may hold anything
        state, parent, group, session = text.rpartition(b")")[2].split(None, 4)[:4]
        found.append(Row(pid=pid, zombie=state in b"ZX", parent=int(parent), group=int(group), session=int(session)))
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def members(table: Iterable[Row], leaders: Iterable[int]) -> set[int]:
    """Those alive in the sessions of these leaders, and all below them, in whatever session; the leaders too."""
    table, leading = list(table), set(leaders)
    below: dict[int, list[Row]] = {}
    for row in table:
        below.setdefault(row.parent, []).append(row)
    queue = [row for row in table if row.session in leading or row.pid in leading]
    seen: set[int] = set()
    alive: set[int] = set()
    while queue:
        row = queue.pop()
        if row.pid in seen:
            continue
        seen.add(row.pid)
        if not row.zombie:
            alive.add(row.pid)
        queue += below.get(row.pid, [])
    return alive


def send(pids: Iterable[int], numbers: Sequence[int]) -> None:
    """Send signals; to processes that are gone, to nobody."""
    for pid in pids:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def send_group(group: int, number: int) -> None:
    """Send a signal to a process group; to one that is gone, to nobody."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def reap_adopted(own: Iterable[int]) -> None:
    """Let go of dead children that were adopted, not started here."""
    ours = set(own)
    for row in rows():
        if row.zombie and row.parent == os.getpid() and row.pid not in ours:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(row.pid, os.WNOHANG)


def kill_marked(name: str, values: Iterable[str]) -> None:
    """Kill every process whose environment says that it is of one of these: what a former life of the service left."""
    marks = {f"{name}={value}".encode() for value in values}
    for pid in _pids() if marks else ():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if marks.intersection(file.read().split(b"\0")):
                send([pid], [signal.SIGKILL])
