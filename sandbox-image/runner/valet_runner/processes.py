"""Child processes: running a command, and ending a whole tree of them.

OpenCode's shell commands have process groups of their own and outlive it (measured), so a tree is found in /proc
before its root is killed, and what was orphaned comes to the runner, which is its own subreaper.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


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


async def run(*command: str, env: Mapping[str, str], cwd: str, timeout: float, limit: int | None = None) -> Finished:
    """Run a command to its end; of its output at most `limit` bytes are kept, then it is killed.

    Raises `TimeoutError` after `timeout` seconds (and kills it), `OSError` when it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(env),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
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


def end_tree(root: int, *, also: Iterable[int] = ()) -> None:
    """Kill a process group's leader, its group and everything under it, and `also` (orphans of it seen before)."""
    doomed = {*descendants([root]), *also}
    _kill_group(root)
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        reap(pid)


def orphans(of_parent: int, before: Iterable[int]) -> list[int]:
    """Which of these processes now belong to `of_parent`: they were somebody else's children before."""
    known = set(before)
    return [pid for pid, parent in _processes() if parent == of_parent and pid in known]


def reap(pid: int) -> None:
    """Collect a dead child that no event loop waits for."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _processes() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state parent …; the name may hold anything
            found.append((int(entry.parent.name), int(entry.read_text().rpartition(")")[2].split()[1])))
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
