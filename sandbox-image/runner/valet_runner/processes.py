"""Child processes: running a command, and ending a whole tree of them.

OpenCode's shell commands have process groups of their own and outlive it (measured). The runner is the subreaper of
all that: whatever is orphaned becomes its child, and a child it did not start itself is such an orphan.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import msgspec

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_own: set[int] = set()
"""Running programs that were started here."""
_starting = asyncio.Lock()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left."""

    code: int
    """Exit status; negative for a signal."""
    stdout: bytes
    stderr: bytes


def guard_self() -> None:
    """Make this process unreadable to others of its user (environment, memory) and the parent of orphans (Linux)."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel ends the child when the runner is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def start(
    *command: str,
    env: Mapping[str, str],
    cwd: str,
    stderr: int | None,
    stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start a program in a session of its own, its output piped; `stderr` none: to where the runner's goes. Raises
    `OSError` when it cannot be."""
    async with _starting:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        _own.add(process.pid)
    return process


async def run(
    *command: str,
    env: Mapping[str, str],
    cwd: str,
    timeout: float,
    limit: int | None = None,
    stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL,
) -> Finished:
    """Run a command to its end; of its output at most `limit` bytes are kept, then it is killed.

    Raises `TimeoutError` after `timeout` seconds (and kills it), `OSError` when it cannot be started.
    """
    process = await start(*command, env=env, cwd=cwd, stderr=asyncio.subprocess.PIPE, stdin=stdin)
    assert process.stdout
    assert process.stderr
    errors = asyncio.create_task(process.stderr.read())
    try:
        async with asyncio.timeout(timeout):
            if limit is None:
                stdout = await process.stdout.read()
            else:
                stdout = await _read_up_to(process.stdout, limit)
                if len(stdout) >= limit:
                    _kill_group(process.pid)
            stderr = await errors
            code = await process.wait()
    finally:
        errors.cancel()
        if process.returncode is None:
            _kill_group(process.pid)
            await process.wait()
        _own.discard(process.pid)
    return Finished(code=code, stdout=stdout, stderr=stderr)


def descendants(roots: Iterable[int]) -> list[int]:
    """Every process under these, from /proc; empty where there is none (macOS)."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = list(roots)
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end_tree(root: int) -> None:
    """Kill a process group's leader, its group and everything under it."""
    doomed = descendants([root])
    _kill_group(root)
    _kill(doomed)


def children() -> frozenset[int]:
    """This process's own, started or adopted."""
    return frozenset(pid for pid, parent in _processes() if parent == os.getpid())


def forget(pid: int) -> None:
    """A program that `start` started has ended."""
    _own.discard(pid)


async def reap_adopted() -> None:
    """Let go of orphans that have ended: nobody else waits for them, and each would keep its number for ever."""
    async with _starting:  # a program just being started is nobody's orphan
        for pid, parent, state in _table():
            if parent == os.getpid() and state in "ZX" and pid not in _own:
                _reap(pid)


async def end_orphans(of: int, *, others: frozenset[int]) -> None:
    """After the death of a program that `start` started: kill what it left behind. `others`: the `children` there were
    before it, which are not its."""
    _own.discard(of)
    async with _starting:  # a program just being started is not an orphan
        orphans = children() - _own - others
        _kill([*descendants(orphans), *orphans])


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        _reap(pid)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # no event loop waits for an adopted child
        os.waitpid(pid, os.WNOHANG)


def _processes() -> list[tuple[int, int]]:
    return [(pid, parent) for pid, parent, _ in _table()]


def _table() -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state parent …; the name may hold anything
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            found.append((int(entry.parent.name), int(parent), state))
    return found


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    out = bytearray()
    while len(out) < limit:
        piece = await stream.read(min(1 << 16, limit - len(out)))
        if not piece:
            break
        out += piece
    return bytes(out)
