"""Starting a program: a session and process group of its own, on a terminal or on three pipes. Linux and macOS."""

import errno
import fcntl
import os
import subprocess
import termios
from collections.abc import Mapping

import msgspec

from valet_processes.errors import CannotStart
from valet_processes.requests import Resize, Size
from valet_processes.self_guard import die_with_parent

STDOUT = 1
STDERR = 2

_IUTF8 = 0x4000
"""Erase whole characters, not bytes (Linux; the module termios has no name for it)."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A running program and this side of its channels, all non-blocking."""

    program: subprocess.Popen[bytes]
    reads: dict[int, int]
    """Descriptors to read its output from, and which stream each is."""
    write: int
    """Descriptor to write its input to; a terminal's is that of its output."""
    terminal: int | None
    """Its terminal, the program's side: kept open so that output is never cut off before the program's end."""


def start(command: str, args: list[str], *, cwd: str, env: Mapping[str, str], size: Size | None) -> Started:
    """Start it. Returns when the kernel has taken the program over; raises `CannotStart`."""
    try:
        if not os.path.isdir(cwd):
            raise CannotStart("cwd_missing", f"The working directory {cwd} does not exist or is no directory")
        return _on_terminal([command, *args], cwd, env, size) if size else _on_pipes([command, *args], cwd, env)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _why(error, command, cwd, env) from error


def set_size(descriptor: int, size: Size | Resize) -> None:
    """Give a terminal its size; programs on it are told by SIGWINCH."""
    termios.tcsetwinsize(descriptor, (size.rows, size.cols))


def _on_terminal(argv: list[str], cwd: str, env: Mapping[str, str], size: Size) -> Started:
    ours, theirs = os.openpty()
    try:
        set_size(theirs, size)
        attributes = termios.tcgetattr(theirs)
        attributes[0] |= _IUTF8
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        program = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise
    os.set_blocking(ours, False)
    return Started(program=program, reads={ours: STDOUT}, write=ours, terminal=theirs)


def _on_pipes(argv: list[str], cwd: str, env: Mapping[str, str]) -> Started:
    pipes = [os.pipe() for _ in range(3)]
    (stdin, write), (read_out, stdout), (read_err, stderr) = pipes
    try:
        program = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except BaseException:
        for descriptor in (write, read_out, read_err):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
    for descriptor in (write, read_out, read_err):
        os.set_blocking(descriptor, False)
    return Started(program=program, reads={read_out: STDOUT, read_err: STDERR}, write=write, terminal=None)


def _take_terminal() -> None:
    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the child leads a new session: its terminal becomes the controlling one


def _why(error: Exception, command: str, cwd: str, env: Mapping[str, str]) -> CannotStart:
    number = error.errno if isinstance(error, OSError) else None
    path = env.get("PATH", os.defpath)
    where = "" if "/" in command else f" in PATH={path}"
    if number == errno.ENOENT and "/" in command and os.path.exists(os.path.join(cwd, command)):
        return CannotStart("not_executable", f"{command} exists, but the interpreter or loader it names does not")
    if number in (errno.ENOENT, errno.ENOTDIR):
        hint = "; put its arguments into args, or run it as sh -c" if " " in command else ""
        return CannotStart("command_not_found", f"No program {command!r}{where}{hint}")
    if number == errno.EACCES:
        if not os.access(cwd, os.X_OK):
            return CannotStart("cwd_missing", f"The working directory {cwd} may not be entered")
        return CannotStart("not_executable", f"{command} is not an executable file{where}")
    if number == errno.ENOEXEC:
        return CannotStart("not_executable", f"{command} is neither a program of this machine nor a script with #!")
    if number == errno.E2BIG:
        return CannotStart("too_long", "args and env are longer than the kernel takes; use a file or the input")
    return CannotStart("cannot_start", f"{command} cannot be started: {error}")
