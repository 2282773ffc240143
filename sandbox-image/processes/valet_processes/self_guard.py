"""What the service asks of the kernel for itself (Linux; elsewhere nothing)."""

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def guard_self() -> None:
    """Others of the same user cannot read this process's memory; what loses its parent below it becomes its child."""
    if _libc:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """In a new child: the kernel ends it when the service is gone, however that ended."""
    if _libc:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
