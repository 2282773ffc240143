"""One supervised process at a time: spawned, watched until ready, ended. No decision is made here."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import BinaryIO

from valet_local import limits
from valet_local.identity import Identity, identify
from valet_local.plan import ProcessSpec

_PR_SET_PDEATHSIG = 1


class Process:
    """A running child in a process group of its own."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self.pid = child.pid
        self.identity: Identity | None = identify(child.pid)
        """None when it ended before one could look."""

    @classmethod
    async def spawn(cls, spec: ProcessSpec, extra: Mapping[str, str], log: BinaryIO) -> "Process":
        """Start it. Raises `OSError` when there is no such program."""
        child = await asyncio.create_subprocess_exec(
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**spec.environment, **extra},
            start_new_session=True,
            preexec_fn=_die_with(os.getpid(), spec.orphan_signal or spec.stop_signal),
        )
        return cls(child)

    async def wait(self) -> int:
        """Its exit status; negative for a signal."""
        return await self._child.wait()

    def send(self, number: signal.Signals) -> None:
        """Signal the process, if it still runs."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    def kill_group(self) -> None:
        """End it and everything it started in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, number: signal.Signals, grace: float) -> bool:
        """Ask it to end, and end it after `grace` seconds. Whether it went by itself."""
        self.send(number)
        orderly = True
        try:
            await asyncio.wait_for(asyncio.shield(self._child.wait()), grace)
        except TimeoutError:
            orderly = False
            self.send(signal.SIGKILL)
        self.kill_group()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._child.wait(), limits.KILL_WAIT)
        return orderly


def _die_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    """What a child does first: have the kernel end it when the supervisor dies, however that happens (Linux)."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
