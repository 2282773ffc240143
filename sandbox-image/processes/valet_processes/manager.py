"""All processes of the sandbox: started, found, ended, forgotten, and what happened to them told. An edge."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from valet_protocol import ids
from valet_protocol.codec import rfc3339
from valet_protocol.errors import Unavailable, Unprocessable
from valet_protocol.events.machine import ProcessInfo
from valet_protocol.sandbox_spec import ProcessesSpec
from valet_service import logs, tasks

from valet_processes import limits, process_table, registry, requests, spawn
from valet_processes.answers import Asked
from valet_processes.errors import CannotStart
from valet_processes.event_log import EventLog
from valet_processes.journal import Journal
from valet_processes.output import Output
from valet_processes.process import Process
from valet_processes.registry import Kept
from valet_processes.requests import Create, Filter
from valet_processes.spool import Spool

_log = logs.get(__name__)

MARK = "VALET_PROCESS"
"""In every process's environment: its id."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `process.deleted`."""

    id: str


class Manager:
    """Use with `async with`; leaving it ends every process."""

    def __init__(self, spec: ProcessesSpec, *, adopts: bool) -> None:
        """`adopts`: whether this process is the parent of orphans and has no children but those started here."""
        self._spec = spec
        self._adopts = adopts
        self._processes: dict[str, Process] = {}
        self._spools = Path(spec.spool_dir)
        self._journal = Journal(self._spools / "records")
        self._stopping = False
        self._listeners: set[Callable[[], None]] = set()
        self._deleting: dict[str, asyncio.Task[ProcessInfo]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self.events = EventLog(0, complete=True)

    async def __aenter__(self) -> "Manager":
        now_ms = _now_ms()
        former = self._journal.read()
        self.events = EventLog(now_ms, complete=not former)
        process_table.kill_marked(MARK, [kept.info.id for kept in former if kept.exited_ms is None])
        for kept in former:
            self._restore(kept, now_ms)
        self._remove_unowned()
        self._forget_old()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._child_changed)
        self._sweeping = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        if self._sweeping:
            await tasks.end(self._sweeping)
        for process in self._processes.values():
            process.output.close()

    # -- what clients ask for

    def create(
        self, request: Create, *, environment: Mapping[str, str] = {}, asked: Asked | None = None
    ) -> ProcessInfo:
        """Start a process. `environment` comes before what the request adds; `asked` is kept with it. Raises
        `Refused`."""
        if self._stopping:
            raise Unavailable("stopping", "The process service is ending; try again when it is back")
        requests.check(request, session_id=self._spec.session_id)
        registry.admit(self._kept(), request)
        id = f"proc_{ids.new_id()}"
        cwd = os.path.join(self._spec.workspace, request.cwd or "")
        terminal = {"TERM": "xterm-256color"} if request.pty else {}
        env = {**terminal, **self._spec.environment, **environment, **request.env, MARK: id}
        spool = self._spool(id, request)
        try:
            started = spawn.start(request.command, request.args, cwd=os.path.normpath(cwd), env=env, size=request.pty)
        except CannotStart as error:
            if spool:
                spool.remove()
                spool.close()
            raise Unprocessable(error.code, error.detail) from error
        info = ProcessInfo(
            id=id,
            command=request.command,
            args=request.args,
            cwd=os.path.normpath(cwd),
            tag=request.tag,
            label=request.label,
            pid=started.program.pid,
            pty=request.pty is not None,
            rows=request.pty.rows if request.pty else None,
            cols=request.pty.cols if request.pty else None,
            session_id=request.session_id,
            created_at=rfc3339(_now_ms()),
        )
        process = Process(info, Output(spool=spool, text=info.pty), started, ended=self._on_end, asked=asked)
        self._processes[id] = process
        self._journal.write(process.kept())
        self._tell("process.created", process.snapshot())
        process.leader_ended()  # its end may have come before it was known here
        return process.snapshot()

    def known(self, id: str) -> Process | None:
        """By id."""
        return self._processes.get(id)

    def find(self, key: str) -> Process:
        """By id or tag. Raises `NotFound`."""
        return self._processes[registry.find({kept.info.id: kept for kept in self._kept()}, key)]

    def started_by(self, asked: Asked) -> Process | None:
        """What this request has started before. Raises `Unprocessable` where its key was another one's."""
        id = registry.started_by(self._kept(), asked)
        return self._processes[id] if id else None

    def matching(self, wanted: Filter) -> list[ProcessInfo]:
        """Those that fit, oldest first."""
        return [info for process in self._processes.values() if wanted.fits(info := process.snapshot())]

    def resize(self, process: Process, size: requests.Size | requests.Resize) -> ProcessInfo:
        """Give its terminal a size. Raises `Unprocessable`, `Conflict`."""
        requests.check_size(size)
        if process.resize(size):
            self._updated(process)
        return process.snapshot()

    def relabel(self, process: Process, label: str) -> ProcessInfo:
        """Show it under another name. Raises `Unprocessable`."""
        requests.check_label(label)
        if label != process.info.label:
            process.info = msgspec.structs.replace(process.info, label=label)
            self._updated(process)
        return process.snapshot()

    async def delete(self, process: Process) -> ProcessInfo:
        """End it, then forget it; twice at once is once. Raises `Unavailable`."""
        id = process.info.id
        deleting = self._deleting.get(id)
        if deleting is None:
            deleting = self._deleting[id] = asyncio.create_task(self._delete(process))
            deleting.add_done_callback(lambda _: self._deleting.pop(id, None))
        return await asyncio.shield(deleting)  # begun is finished, whether or not its client stays

    # -- what happened

    def listen(self, listener: Callable[[], None]) -> None:
        """Call it at every event; what it was is in `events`."""
        self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """No longer."""
        self._listeners.discard(listener)

    # -- the end

    async def stop(self) -> None:
        """End every process and record it, in little more than a second."""
        if self._stopping:
            return
        self._stopping = True
        running = [process for process in self._processes.values() if not process.exited.is_set()]
        for process in running:
            process.ask_to_end()
        for wait in (limits.SERVICE_STOP, limits.SERVICE_STOP_KILL):
            waits = [asyncio.create_task(process.exited.wait()) for process in running]
            if waits:
                await asyncio.wait(waits, timeout=wait)
                await tasks.end(*waits)
            running = [process for process in running if not process.exited.is_set()]
            self._kill([process.info.pid for process in running])
        if running:
            _log.warning("processes_left", processes=[process.info.id for process in running])

    def _kill(self, leaders: list[int]) -> None:
        if self._adopts:  # all below this one: also what made itself a session of its own
            leaders = [*leaders, *(row.pid for row in process_table.rows() if row.parent == os.getpid())]
        process_table.send(process_table.members(process_table.rows(), leaders), [signal.SIGKILL])

    # -- inside

    def _restore(self, kept: Kept, now_ms: int) -> None:
        info = kept.info
        try:
            spool = Spool(self._spools / info.id, room=lambda: 0, writable=False)
        except OSError:
            spool = None
        ended_before = kept.exited_ms is not None
        if not ended_before:
            info = msgspec.structs.replace(
                info,
                status="exited",
                signal="SIGKILL",
                exited_at=rfc3339(now_ms),
                output_bytes=spool.end if spool else info.output_bytes,
            )
            kept = Kept(info=info, exited_ms=now_ms, asked=kept.asked)
            self._journal.write(kept)
        self._processes[info.id] = Process.restored(kept, Output(spool=spool, end=info.output_bytes, text=info.pty))
        if not ended_before:
            self._tell("process.exited", info)

    async def _delete(self, process: Process) -> ProcessInfo:
        await process.end()
        if process.info.id in self._processes:  # not forgotten meanwhile, for its age
            self._forget(process)
        return process.snapshot()

    def _remove_unowned(self) -> None:
        """Outputs whose record was removed when the service was killed."""
        for path in self._spools.glob("proc_*.*"):
            if path.stem not in self._processes:
                path.unlink(missing_ok=True)

    def _on_end(self, process: Process) -> None:
        self._journal.write(process.kept())
        self._tell("process.exited", process.snapshot())
        self._forget_old()

    def _updated(self, process: Process) -> None:
        self._journal.write(process.kept())
        self._tell("process.updated", process.snapshot())

    def _forget_old(self) -> None:
        for id in registry.forgettable(self._kept(), _now_ms()):
            self._forget(self._processes[id])
        for id in registry.give_up_output(self._kept()):
            self._processes[id].output.ring.clear()

    def _forget(self, process: Process) -> None:
        del self._processes[process.info.id]
        self._journal.remove(process.info.id)
        process.forget()
        self._tell("process.deleted", Deleted(id=process.info.id))

    def _tell(self, type: str, data: ProcessInfo | Deleted) -> None:
        self.events.append(type, msgspec.json.encode(data))
        for listener in list(self._listeners):
            listener()

    def _kept(self) -> list[Kept]:
        return [process.kept() for process in self._processes.values()]

    def _spool(self, id: str, request: Create) -> Spool | None:
        """What an agent is to be shown is kept as well: its beginning is wanted at its end, and over a restart."""
        if not request.keep_output and request.session_id is None:
            return None
        try:
            return Spool(self._spools / id, room=self._spool_room)
        except OSError as error:
            if not request.keep_output:
                return None
            raise Unavailable("cannot_keep_output", f"Its output cannot be kept: {error}") from error

    def _spool_room(self) -> int:
        used = sum(process.output.spool.end for process in self._processes.values() if process.output.spool)
        return limits.SPOOLS_BYTES - used

    def _child_changed(self) -> None:
        for process in self._processes.values():
            process.leader_ended()
        if self._adopts:
            own = [process.info.pid for process in self._processes.values() if not process.exited.is_set()]
            process_table.reap_adopted(own)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(limits.SWEEP_EVERY)
            self._child_changed()
            self._forget_old()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
