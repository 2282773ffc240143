"""Keeping one of our own services running beside OpenCode: the gateway, the process service.

It gets its spec on standard input, says `READY` on standard output when it serves, and logs to where the runner does.
"""

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping

from valet_service import logs

from valet_runner import limits, processes
from valet_runner.boot_steps import BootSteps
from valet_runner.errors import ServiceUnavailable
from valet_runner.patience import until_started

_log = logs.get(__name__)


def is_installed(module: str) -> bool:
    """Whether this machine has a service of ours."""
    try:
        return importlib.util.find_spec(f"{module}.__main__") is not None
    except ModuleNotFoundError:
        return False


class Supervised:
    """A service, restarted with back-off whenever it ends. `run()` is its life, `ready` is set while it serves.

    `module` is what `python -m` runs, `spec` the JSON it gets; `started` is called each time it serves, `ended` after
    each time it did, before the next start.
    """

    def __init__(
        self,
        name: str,
        *,
        module: str,
        spec: bytes,
        environment: Mapping[str, str],
        folder: str,
        steps: BootSteps,
        clock: Callable[[], float],
        started: Callable[[], None] = lambda: None,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self._module = module
        self._spec = spec
        self._environment = environment
        self._folder = folder
        self._steps = steps
        self._clock = clock
        self._started = started
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.tried = asyncio.Event()
        """Set when the first start has succeeded or failed."""

    @property
    def pid(self) -> int | None:
        """Its process, while it serves."""
        return self._process.pid if self._process and self.ready.is_set() else None

    async def run(self) -> None:
        """Until cancelled; then it is ended in order, with all that it started."""
        if not is_installed(self._module):
            self._steps.absent(self.name, f"{self._module} is not installed here")
            self.tried.set()
            return
        wait, first = limits.RESTART_WAIT, True
        try:
            while True:
                began = self._clock()
                try:
                    await self._start()
                    if first:
                        self._steps.done(self.name, began)
                    self._steps.running(self.name)
                    self.ready.set()
                    self.tried.set()
                    self._started()
                    assert self._process
                    await self._process.wait()
                    self._steps.stopped(self.name, f"it ended with status {self._process.returncode}")
                except ServiceUnavailable as error:
                    if first:
                        self._steps.failed(self.name, began, str(error))
                    _log.warning("service_not_started", part=self.name, reason=str(error))
                    self.tried.set()
                first = False
                served = self.ready.is_set()
                self.ready.clear()
                await self._clear_away()
                if served and self._ended:
                    await self._ended()
                if self._clock() - began > limits.RESTART_RESET:
                    wait = limits.RESTART_WAIT
                await asyncio.sleep(wait)
                wait = min(wait * 2, limits.RESTART_WAIT_MAX)
        finally:
            self.ready.clear()
            await self._stop()

    async def _start(self) -> None:
        try:
            self._process = await processes.start(
                sys.executable,
                # the folder is the agent's: a module that it has put there would be run with what this one is told
                "-Ps",
                "-m",
                self._module,
                env=self._environment,
                cwd=self._folder,
                stdin=asyncio.subprocess.PIPE,
                stderr=None,
            )
        except OSError as error:
            raise ServiceUnavailable(f"{self._module} cannot be started: {error.strerror or error}") from error
        began = self._clock()
        try:
            await until_started(
                self._served(self._process),
                pid=self._process.pid,
                patience=limits.SERVICE_START_TIMEOUT,
                most=limits.SERVICE_START_TIMEOUT_MAX,
            )
        except TimeoutError as error:
            raise ServiceUnavailable(f"it did not get ready within {self._clock() - began:.0f} s") from error
        except OSError as error:
            raise ServiceUnavailable(f"it ended as it started: {error.strerror or error}") from error

    async def _served(self, process: asyncio.subprocess.Process) -> None:
        """Give it its spec; returns when it serves."""
        assert process.stdin
        assert process.stdout
        process.stdin.write(self._spec)
        await process.stdin.drain()
        process.stdin.close()
        while (line := await process.stdout.readline()) != b"READY\n":
            if not line:
                raise ServiceUnavailable(f"it ended with status {await process.wait()} as it started")

    async def _clear_away(self) -> None:
        if self._process:
            processes.end_tree(self._process.pid)
            await self._process.wait()
            processes.forget(self._process.pid)

    async def _stop(self) -> None:
        process = self._process
        if process and process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                await asyncio.wait_for(process.wait(), limits.SERVICE_STOP_GRACE)
            except (TimeoutError, ProcessLookupError):
                _log.info("service_killed", part=self.name, reason="it did not end in time")
        await self._clear_away()
