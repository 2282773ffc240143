"""Runs the processes of a plan: in order, watched, restarted, and ended in order."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from valet_local import limits, log_files
from valet_local.errors import StartFailed
from valet_local.files import write_atomically
from valet_local.leftovers import Recorded
from valet_local.notify import ReadySocket
from valet_local.plan import ProcessSpec
from valet_local.process import Process
from valet_local.restart_policy import Restarts, after_death

Report = Callable[[str, str, str], None]
"""Told what happens: process, one of starting|ready|died|restarting|stopped|killed, and a detail."""


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor touches besides processes."""

    logs: Path
    sockets: Path
    """Directory of the readiness sockets; short, because their paths are limited."""
    record: Path
    """Where the pids are written, for the next start after a crash."""
    probes: Mapping[str, Callable[[int], Awaitable[None]]]
    """How to wait for a process whose readiness is `probe`; gets its pid."""
    before_start: Mapping[str, Callable[[], None]]
    """What must be done before a process starts, each time. May block."""
    report: Report


class _Watched:
    """A process of the plan and what is known of it."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.process: Process | None = None
        self.ready = asyncio.Event()
        self.was_ready = False
        self.restarts = Restarts()
        self.ended_by_us = False
        """Whether its end was asked for, to start it anew."""


class Supervisor:
    """Holds a plan up. `start`, then `failed` or your own reason to `stop`."""

    def __init__(self, specs: tuple[ProcessSpec, ...], edges: Edges) -> None:
        self._watched = {spec.name: _Watched(spec) for spec in specs}
        self._edges = edges
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Start everything and wait until all is ready. Raises `StartFailed`; call `stop` in either case."""
        self._edges.sockets.mkdir(mode=0o700, exist_ok=True)
        self._tasks = [
            asyncio.create_task(self._keep(watched), name=watched.spec.name) for watched in self._watched.values()
        ]
        all_ready = asyncio.create_task(self._all_ready())
        try:
            await asyncio.wait((all_ready, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
        finally:
            all_ready.cancel()

    async def _all_ready(self) -> None:
        for watched in self._watched.values():
            await watched.ready.wait()

    async def tend(self) -> None:
        """Keep the logs short, until cancelled. Raises what ended a watching task, which is a defect of ours."""
        while True:
            done, _ = await asyncio.wait(self._tasks, timeout=limits.LOG_CHECK, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            with contextlib.suppress(OSError):  # a full disk: they are cut when there is room again
                await asyncio.to_thread(log_files.trim, self._edges.logs)

    def pid(self, name: str) -> int | None:
        """The pid of a process that runs now."""
        process = self._watched[name].process
        return process.pid if process else None

    async def restart(self, name: str, why: str) -> None:
        """End a process in order, so that it is started again at once. Nothing while it does not run anyway."""
        watched = self._watched[name]
        if watched.process is None or self._stopping:
            return
        watched.ended_by_us = True
        self._edges.report(name, "restarting", why)
        await watched.process.stop(watched.spec.stop_signal, limits.SERVER_GRACE)

    async def stop(self) -> None:
        """End the services together, then the servers. At most `SERVICE_GRACE + SERVER_GRACE` and two kill
        waits.
        """
        self._stopping = True
        await self._stop_rank("service", limits.SERVICE_GRACE)
        await self._stop_rank("server", limits.SERVER_GRACE)

    async def _stop_rank(self, rank: str, grace: float) -> None:
        members = [watched for watched in self._watched.values() if watched.spec.rank == rank]
        names = {watched.spec.name for watched in members}
        tasks = [task for task in self._tasks if task.get_name() in names]
        await asyncio.gather(*(self._stop_one(watched, grace) for watched in members))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A start may have been under way while we looked.
        await asyncio.gather(*(self._stop_one(watched, grace=0.1) for watched in members))

    async def _stop_one(self, watched: _Watched, grace: float) -> None:
        process = watched.process
        if process is None:
            return
        orderly = await process.stop(watched.spec.stop_signal, grace)
        watched.process = None
        self._edges.report(watched.spec.name, "stopped" if orderly else "killed", "")

    async def _keep(self, watched: _Watched) -> None:
        for name in watched.spec.after:
            await self._watched[name].ready.wait()
        signals = (
            ReadySocket(self._edges.sockets / f"{watched.spec.name}.sock")
            if watched.spec.readiness == "notify"
            else None
        )
        try:
            while not self._stopping:
                await self._run_once(watched, signals)
        finally:
            if signals is not None:
                signals.close()

    async def _run_once(self, watched: _Watched, signals: ReadySocket | None) -> None:
        name = watched.spec.name
        before = self._edges.before_start.get(name)
        if before is not None:
            await asyncio.to_thread(before)
        if signals is not None:
            signals.forget()
        extra = {"NOTIFY_SOCKET": str(signals.path)} if signals is not None else {}
        self._edges.report(name, "starting", "")
        started = time.monotonic()
        with log_files.open_log(self._edges.logs, name) as log:
            try:
                process = await Process.spawn(watched.spec, extra, log)
            except OSError as error:
                raise StartFailed(f"{name} cannot be started: {watched.spec.command[0]}: {error.strerror}") from None
        watched.process = process
        self._record()
        status = await self._watch(watched, process, signals, started)
        watched.ready.clear()
        if self._stopping:
            return
        watched.process = None
        if watched.ended_by_us:
            watched.ended_by_us = False
            return
        watched.restarts, wait = after_death(watched.restarts, uptime=time.monotonic() - started)
        self._edges.report(name, "died", f"{_cause(status)}; again in {wait:.1f} s")
        if not watched.was_ready and watched.restarts.in_a_row >= limits.START_ATTEMPTS:
            raise self._failed(name, f"ended {watched.restarts.in_a_row} times before it was ready")
        await asyncio.sleep(wait)

    async def _watch(self, watched: _Watched, process: Process, signals: ReadySocket | None, started: float) -> int:
        """Until the process ends: its exit status. Sets `ready` on the way."""
        name = watched.spec.name
        becoming = asyncio.ensure_future(signals.wait() if signals else self._edges.probes[name](process.pid))
        ending = asyncio.ensure_future(process.wait())
        timeout = limits.READY_TIMEOUT if signals else limits.SERVER_READY_TIMEOUT
        try:
            await asyncio.wait((becoming, ending), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if becoming.done() and not ending.done():
                becoming.result()
                watched.was_ready = True
                watched.ready.set()
                self._edges.report(name, "ready", f"{(time.monotonic() - started) * 1000:.0f} ms")
            elif not ending.done():
                if not watched.was_ready:
                    raise self._failed(name, f"was not ready within {timeout:g} s")
                self._edges.report(name, "killed", f"was not ready within {timeout:g} s")
                process.kill_group()
            return await ending
        finally:
            becoming.cancel()
            ending.cancel()

    def _record(self) -> None:
        running = [
            Recorded(
                name=watched.spec.name,
                pid=watched.process.identity.pid,
                start_time=watched.process.identity.start_time,
                stop_signal=int(watched.spec.stop_signal),
            )
            for watched in self._watched.values()
            if watched.process is not None and watched.process.identity is not None
        ]
        # Without room for it the old one stays; what it lacks ends by the kernel's signal when we die.
        with contextlib.suppress(OSError):
            write_atomically(self._edges.record, msgspec.json.encode(running))

    def _failed(self, name: str, what: str) -> StartFailed:
        words = log_files.last_words(self._edges.logs, name)
        return StartFailed(f"{name} {what}; all it said is in {self._edges.logs / name}.log\n{words}".rstrip())


def _cause(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
