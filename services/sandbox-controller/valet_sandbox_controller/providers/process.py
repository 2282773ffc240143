"""The last resort: a sandbox is a plain process group with the rights of the platform itself.

Only where a person asked for `isolation = "none"`: on a machine that is a sandbox already.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import ProviderFailed
from valet_sandbox_controller.provider import Capability, Ended, Places, SandboxRef, SandboxSpec
from valet_sandbox_controller.providers import host, processes
from valet_sandbox_controller.providers.local import LocalSandboxes
from valet_sandbox_controller.providers.spec_pipe import filled
from valet_sandbox_controller.providers.storage import SOCKET, Storage, first_process

_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TERM")
"""What an unisolated runner gets of our environment: no keys, no credentials' paths."""

_MARK = "VALET_SANDBOX"
"""Tells whose sandbox a process belongs to: the directory of its session."""

_SHIM = 'echo "{\\"child-pid\\": $$}" >"$0" && exec "$@"'
"""Writes its process id down before anything else, so that a crash of the controller leaves nothing unknown."""


class ProcessProvider(LocalSandboxes):
    """Sandboxes that are process groups; `command` is what runs in them."""

    name = "process"
    isolation = "none"
    capabilities = Capability.KEEPS_WORKSPACE | Capability.SURVIVES_CONTROLLER | Capability.HOST_REPOSITORY

    def __init__(
        self, *, storage: Storage, run_dir: Path, data_dir: Path, programs: host.Programs, command: tuple[str, ...]
    ) -> None:
        super().__init__(storage)
        self._run_dir = run_dir
        self._data_dir = data_dir
        self._programs = programs
        self._command = command

    async def check(self) -> None:
        return None

    def places(self, session_id: str) -> Places:
        files = self.storage.of(session_id)
        directories = [os.environ.get("PATH", os.defpath)]
        rg = host.find_rg(self._programs)
        if rg is not None:
            directories.append(os.path.dirname(rg))
        return Places(
            portal_socket=str(self._run_dir / "portal" / "portal.sock"),
            workspace=str(files.workspace),
            home=str(files.home),
            source="",
            opencode=host.find_opencode(self._programs, self._data_dir),
            path=":".join(directories),
            gateway_socket=str(files.gateway / SOCKET),
            gateway_port=host.free_port(),
            xterm_dir=host.find_xterm(self._programs),
        )

    async def create(self, spec: SandboxSpec) -> SandboxRef:
        try:
            files = await asyncio.to_thread(self.storage.prepare, spec.session_id)
            log = self.storage.open_log(spec.session_id)
            told: int | None = None
            try:
                told = filled(spec.runner_spec)
                process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    _SHIM,
                    str(files.status),
                    *self._command,
                    stdin=told,
                    stdout=log,
                    stderr=log,
                    cwd=files.workspace,
                    env={name: os.environ[name] for name in _KEPT if name in os.environ}
                    | {"HOME": str(files.home), _MARK: str(files.root), "VALET_RUNNER_SPEC": "-"},
                    start_new_session=True,
                )
            finally:
                os.close(log)
                if told is not None:
                    os.close(told)
        except OSError as error:
            self.storage.close_gateway(spec.session_id)
            raise ProviderFailed(f"The runner could not be started: {error.strerror or error}.") from error
        started = processes.start_time(process.pid)
        if started is None:
            await process.wait()
            raise ProviderFailed(f"The runner ended at once: {self.storage.log_tail(spec.session_id, 0)}")
        self.adopt_child(process)
        self.storage.remember(spec.session_id, process.pid, started)
        return SandboxRef(
            provider=self.name,
            id=spec.session_id,
            pid=process.pid,
            start_time=started,
            status_file=str(files.status),
        )

    async def wait(self, ref: SandboxRef) -> Ended:
        ended = await super().wait(ref)
        await self._kill_rest(ref, [])
        return ended

    async def terminate(self, ref: SandboxRef, *, grace: float) -> None:
        tree = processes.descendants(ref.pid) if processes.is_alive(ref.pid, ref.start_time) else []
        await self.end(ref, [ref.pid], grace=grace)
        await self._kill_rest(ref, tree)

    async def abandon(self, session_id: str) -> None:
        files = self.storage.of(session_id)
        await asyncio.to_thread(self.storage.close_gateway, session_id)
        pid = first_process(str(files.status)) or 0
        started = processes.start_time(pid) if pid else None
        if started is None or not _is_runner_of(pid, str(files.root)):
            return
        tree = processes.descendants(pid)
        processes.send(pid, started, signal.SIGKILL)
        await asyncio.wait_for(processes.ended(pid, started), limits.KILL_WAIT)
        ref = SandboxRef(provider=self.name, id=session_id, pid=pid, start_time=started)
        await self._kill_rest(ref, tree)

    async def _kill_rest(self, ref: SandboxRef, tree: list[tuple[int, int]]) -> None:
        """End what the runner has left: its group, what is known to be its offspring, and who carries its mark.

        Without a process namespace nothing else holds a sandbox together, and agents start commands in sessions of
        their own. Stopped processes die of SIGKILL like any other.
        """
        _kill_group(ref.pid, ref.start_time)
        root = str(self.storage.of(ref.id).root)
        async with asyncio.timeout(limits.KILL_WAIT):
            while left := [*tree, *processes.with_variable(_MARK, root)]:
                tree = []
                for pid, started in left:
                    processes.send(pid, started, signal.SIGKILL)
                for pid, started in left:
                    await processes.ended(pid, started)


def _kill_group(group: int, started: int) -> None:
    # the number is not given to a new process while the group has members; a leader that started at another time
    # therefore means that ours is empty and this one a stranger's
    if processes.start_time(group) not in (None, started):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group > 1:
            os.killpg(group, signal.SIGKILL)


def _is_runner_of(pid: int, root: str) -> bool:
    try:
        return f"{_MARK}={root}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
