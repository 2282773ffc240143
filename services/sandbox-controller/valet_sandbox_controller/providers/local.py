"""What the local providers share: a sandbox is a process on this machine, found again by pid and start time."""

import asyncio
import signal

from valet_sandbox_controller import limits
from valet_sandbox_controller.provider import Ended, Running, SandboxRef, Status
from valet_sandbox_controller.providers import processes
from valet_sandbox_controller.providers.storage import Storage, exit_code


class LocalSandboxes:
    """Watching and ending sandboxes that are processes of this machine."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._reapers: set[asyncio.Task[int]] = set()

    def adopt_child(self, process: asyncio.subprocess.Process) -> None:
        """Take the exit status of a child of ours when it ends, so that no zombie stays."""
        reaper = asyncio.create_task(process.wait())
        self._reapers.add(reaper)
        reaper.add_done_callback(self._reapers.discard)

    async def status(self, ref: SandboxRef) -> Status:
        if processes.is_alive(ref.pid, ref.start_time):
            return Running()
        return Ended(exit_code(ref.status_file))

    async def wait(self, ref: SandboxRef) -> Ended:
        await processes.ended(ref.pid, ref.start_time)
        await self._monitor_ended(ref)
        return Ended(exit_code(ref.status_file))

    async def end(self, ref: SandboxRef, asked: list[int], *, grace: float) -> None:
        """SIGTERM to the processes `asked`, then SIGKILL to the sandbox's first process."""
        for pid in asked:
            started = processes.start_time(pid)
            if started is not None:
                processes.send(pid, started, signal.SIGTERM)
        try:
            await asyncio.wait_for(processes.ended(ref.pid, ref.start_time), grace if asked else 0)
        except TimeoutError:
            processes.send(ref.pid, ref.start_time, signal.SIGKILL)
            await asyncio.wait_for(processes.ended(ref.pid, ref.start_time), limits.KILL_WAIT)
        await self._monitor_ended(ref)
        await asyncio.to_thread(self.storage.forget, ref.id)  # what an agent has put there may be much

    async def delete_workspace(self, session_id: str) -> None:
        if self.storage.of(session_id).root.exists():
            await asyncio.to_thread(self.storage.delete, session_id)

    async def tidy(self) -> None:
        await asyncio.to_thread(self.storage.cap_logs)

    async def _monitor_ended(self, ref: SandboxRef) -> None:
        if not ref.monitor:
            return
        try:
            await asyncio.wait_for(processes.ended(ref.monitor, ref.monitor_start_time), limits.EXIT_CODE_WAIT)
        except TimeoutError:
            processes.send(ref.monitor, ref.monitor_start_time, signal.SIGKILL)
