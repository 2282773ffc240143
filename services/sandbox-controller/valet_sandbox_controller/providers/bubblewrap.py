"""The local provider: a sandbox is a bubblewrap around the runner on this machine.

It has a network namespace of its own (its only door is the portal's socket), its own processes, users, hostname and
/tmp, and sees of the host's files what `host.view` lists, read-only, and its own workspace and home. Its user is 1000
inside and, outside, the user that runs Valet — without capabilities. Running Valet as an unprivileged user is
therefore the stronger set-up: a sandbox that root started is still user 0 towards files it can see.
"""

import array
import asyncio
import errno
import fcntl
import os
import signal
import termios
from pathlib import Path

import msgspec
from valet_service import logs

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import IsolationUnavailable, ProviderFailed
from valet_sandbox_controller.provider import Capability, Ended, Places, SandboxRef, SandboxSpec, Status
from valet_sandbox_controller.providers import bwrap, host, processes
from valet_sandbox_controller.providers.bwrap import Bind
from valet_sandbox_controller.providers.cgroups import ControlGroups, limit_process
from valet_sandbox_controller.providers.local import LocalSandboxes
from valet_sandbox_controller.providers.spec_pipe import filled
from valet_sandbox_controller.providers.storage import SOCKET, SessionFiles, Storage, exit_code, first_process

_log = logs.get(__name__)
_INSIDE = "/run/valet"
_GATEWAY = f"{_INSIDE}/gateway"


class BubblewrapProvider(LocalSandboxes):
    """Sandboxes by bubblewrap. `command` is what runs inside (the runner; a small script in tests)."""

    name = "local"
    isolation = "bwrap"
    capabilities = (
        Capability.ISOLATED | Capability.KEEPS_WORKSPACE | Capability.SURVIVES_CONTROLLER | Capability.HOST_REPOSITORY
    )

    def __init__(
        self,
        *,
        storage: Storage,
        run_dir: Path,
        data_dir: Path,
        programs: host.Programs,
        command: tuple[str, ...],
        log_level: str = "info",
        extra: tuple[Bind, ...] = (),
        hidden: tuple[Path, ...] = (),
    ) -> None:
        """`hidden` is never shown, whatever lies around it: where the platform keeps its keys."""
        super().__init__(storage)
        self._portal = run_dir / "portal"
        self._etc = run_dir / "etc"
        self._data_dir = data_dir
        self._programs = programs
        self._command = command
        self._log_level = log_level
        self._extra = extra
        self._hidden = tuple(map(str, (data_dir, run_dir, *hidden)))
        self._groups = ControlGroups()
        self._bwrap: str | None = None
        self._has_size = False
        self._view: host.HostView | None = None

    async def check(self) -> None:
        reasons: list[str] = []
        for candidate in host.bwrap_candidates(self._programs):
            failure = await _try(bwrap.probe(candidate))
            if failure is None:
                self._bwrap = candidate
                self._has_size = await _try([candidate, "--size", "1", "--version"]) is None
                return
            reasons.append(f"{candidate} says: {failure}")
        raise IsolationUnavailable("; ".join(reasons) or "there is no `bwrap` on the PATH")

    def places(self, session_id: str) -> Places:
        return Places(
            portal_socket=f"{_INSIDE}/portal/portal.sock",
            workspace="/workspace",
            home="/home/agent",
            source=f"{_INSIDE}/source",
            opencode=f"{host.TOOLS}/opencode",
            path=self._host().path,
            gateway_socket=f"{_GATEWAY}/{SOCKET}",
            xterm_dir=host.XTERM if host.find_xterm(self._programs) else None,
        )

    async def create(self, spec: SandboxSpec) -> SandboxRef:
        if self._bwrap is None:
            await self.check()
        try:
            files = await asyncio.to_thread(self.storage.prepare, spec.session_id)
            self._portal.mkdir(mode=0o711, parents=True, exist_ok=True)
            return await self._start(spec, files)
        except OSError as error:
            self.storage.close_gateway(spec.session_id)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            words = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
            raise ProviderFailed(f"The sandbox could not be started: {words}.", retryable=not full) from error

    async def status(self, ref: SandboxRef) -> Status:
        # bwrap's first process stays while anything the runner left behind runs; the runner's end is what counts
        code = exit_code(ref.status_file)
        return await super().status(ref) if code is None else Ended(code)

    async def wait(self, ref: SandboxRef) -> Ended:
        ends = [
            asyncio.ensure_future(processes.ended(ref.pid, ref.start_time)),
            asyncio.ensure_future(processes.ended(ref.monitor, ref.monitor_start_time)),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if isinstance(await self.status(ref), Ended):
            processes.send(ref.pid, ref.start_time, signal.SIGKILL)
        return await super().wait(ref)

    async def terminate(self, ref: SandboxRef, *, grace: float) -> None:
        # the first process is bwrap's own and passes nothing on; the runner is its child
        asked = processes.children(ref.pid) if processes.is_alive(ref.pid, ref.start_time) else []
        await self.end(ref, asked, grace=grace)
        await self._groups.remove(ref.id)

    async def abandon(self, session_id: str) -> None:
        files = self.storage.of(session_id)
        pid = first_process(str(files.status))
        started = processes.start_time(pid) if pid else None
        # a number from a file: only when the process says itself that it belongs to this session
        if pid and started is not None and str(files.workspace) in processes.command_line(pid):
            processes.send(pid, started, signal.SIGKILL)
            await asyncio.wait_for(processes.ended(pid, started), limits.KILL_WAIT)
        await self._groups.remove(session_id)
        await asyncio.to_thread(self.storage.close_gateway, session_id)

    def _host(self) -> host.HostView:
        opencode = host.find_opencode(self._programs, self._data_dir)
        if self._view is None or not any(bind.source == opencode for bind in self._view.binds):
            etc = host.write_etc(self._etc)
            rg, xterm = host.find_rg(self._programs), host.find_xterm(self._programs)
            self._view = host.view(etc=etc, opencode=opencode, rg=rg, xterm=xterm, hidden=self._hidden)
        return self._view

    def _box(self, spec: SandboxSpec, files: SessionFiles, info: int, status: int, block: int) -> bwrap.Box:
        view = self._host()
        binds = [
            *view.binds,
            *self._extra,
            Bind(str(files.home), "/home/agent", writable=True),
            Bind(str(files.workspace), "/workspace", writable=True),
            Bind(str(self._portal), f"{_INSIDE}/portal"),
            Bind(str(files.gateway), _GATEWAY, writable=True),
        ]
        if spec.source is not None:
            binds.append(Bind(str(spec.source.path), f"{_INSIDE}/source"))
            binds += [Bind(str(path), str(path)) for path in spec.source.also]
        assert self._bwrap
        return bwrap.Box(
            bwrap=self._bwrap,
            hostname="sandbox",
            symlinks=view.symlinks,
            binds=tuple(binds),
            environment=(
                ("HOME", "/home/agent"),
                ("USER", "agent"),
                ("LOGNAME", "agent"),
                ("SHELL", "/bin/bash"),
                ("LANG", "C.UTF-8"),
                ("PATH", view.path),
                ("TMPDIR", "/tmp"),
                # everything it imports is read-only
                ("PYTHONDONTWRITEBYTECODE", "1"),
                ("VALET_LOG_LEVEL", self._log_level),
                ("VALET_RUNNER_SPEC", "-"),
            ),
            directory="/workspace",
            tmp_bytes=limits.TMP_BYTES if self._has_size else None,
            command=self._command,
            info_fd=info,
            status_fd=status,
            block_fd=block,
        )

    async def _start(self, spec: SandboxSpec, files: SessionFiles) -> SandboxRef:
        log = self.storage.open_log(spec.session_id)
        log_start = os.fstat(log).st_size
        status = os.open(files.status, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        info_read, info_write = os.pipe2(os.O_CLOEXEC)
        block_read, block_write = os.pipe2(os.O_CLOEXEC)
        process: asyncio.subprocess.Process | None = None
        told: int | None = None
        try:
            told = filled(spec.runner_spec)
            box = self._box(spec, files, info_write, status, block_read)
            process = await asyncio.create_subprocess_exec(
                *bwrap.arguments(box),
                stdin=told,
                stdout=log,
                stderr=log,
                env={},
                pass_fds=(info_write, status, block_read),
                start_new_session=True,
            )
            monitor_started = processes.start_time(process.pid)
            self.adopt_child(process)
            async with asyncio.timeout(limits.START_TIMEOUT):
                pid = await _first_pid(info_read, info_write)
                started = processes.start_time(pid) if pid else None
                if not pid or started is None:
                    raise ProviderFailed(self._words(spec.session_id, log_start))
                self._groups.join(spec.session_id, pid, spec.limits)
                limit_process(pid, spec.limits)
                self.storage.remember(spec.session_id, pid, started)
                os.write(block_write, b"x")
                # bwrap reads the byte when all mounts are made; if one fails it ends without reading it
                while _unread(block_read):
                    if not processes.is_alive(pid, started):
                        raise ProviderFailed(self._words(spec.session_id, log_start))
                    await asyncio.sleep(limits.START_POLL)
        except (TimeoutError, ProviderFailed, ProcessLookupError) as error:
            if process is not None and process.returncode is None:
                process.kill()
            await self.abandon(spec.session_id)
            self.storage.forget(spec.session_id)
            if isinstance(error, ProviderFailed):
                raise
            raise ProviderFailed(f"bubblewrap did not get ready. {self._words(spec.session_id, log_start)}") from error
        finally:
            for descriptor in (log, status, info_read, block_read, block_write, told):
                if descriptor is not None:
                    os.close(descriptor)
        return SandboxRef(
            provider=self.name,
            id=spec.session_id,
            pid=pid,
            start_time=started,
            monitor=process.pid,
            monitor_start_time=monitor_started or 0,
            status_file=str(files.status),
        )

    def _words(self, session_id: str, log_start: int) -> str:
        said = self.storage.log_tail(session_id, log_start)
        return f"The sandbox could not be started: {said or 'bubblewrap ended without a word'}"


async def _first_pid(read: int, write: int) -> int | None:
    """Read bwrap's `--info-fd`: the first process's id; none when bwrap ended before it had one."""
    os.close(write)
    loop = asyncio.get_running_loop()
    os.set_blocking(read, False)
    text = b""
    while not text.endswith(b"}\n"):
        readable = loop.create_future()
        loop.add_reader(read, lambda done=readable: done.done() or done.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(read)
        chunk = os.read(read, 4096)
        if not chunk:
            return None
        text += chunk
    return msgspec.json.decode(text, type=dict[str, int]).get("child-pid")


def _unread(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


async def _try(command: list[str]) -> str | None:
    """Run a short command; none when it succeeds, else what it says."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return error.strerror or str(error)
    try:
        _, said = await asyncio.wait_for(process.communicate(), limits.PROBE_TIMEOUT)
    except TimeoutError:
        process.kill()
        return f"no answer within {limits.PROBE_TIMEOUT:g} seconds"
    return None if process.returncode == 0 else said.decode(errors="replace").strip() or f"status {process.returncode}"
