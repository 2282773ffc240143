"""The directories of local sandboxes: `D/sandboxes/<session>/{workspace,home,run}`, their logs, their records, and
the folders of their gateways' sockets."""

import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import ProviderFailed

SOCKET = "s"
"""The gateway's socket in its folder. Short: a unix socket's path may have 107 bytes, and a run directory takes 70."""


def gateways(run_dir: Path) -> Path:
    """Where each running sandbox has a folder, by its session's id, in which its gateway makes its socket."""
    return run_dir / "gw"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A running sandbox in `<run dir>/sandboxes/<session>.json`: for the supervisor's last resort."""

    pid: int
    start_time: int


class SessionFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of one session."""

    root: Path
    log: Path
    record: Path
    gateway: Path
    """What the sandbox sees as the folder of its gateway's socket, and may write to. There while it is."""

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def run(self) -> Path:
        """What belongs to the present sandbox only."""
        return self.root / "run"

    @property
    def status(self) -> Path:
        """bwrap's monitor writes the first process's id and later the exit code here."""
        return self.run / "status.json"


class Storage:
    """Where the sandboxes of this machine are kept."""

    def __init__(self, data_dir: Path, run_dir: Path) -> None:
        self._sandboxes = data_dir / "sandboxes"
        self._logs = data_dir / "logs" / "sandboxes"
        self._records = run_dir / "sandboxes"
        self._gateways = gateways(run_dir)

    def of(self, session_id: str) -> SessionFiles:
        """The paths of a session; nothing is made."""
        return SessionFiles(
            root=self._sandboxes / session_id,
            log=self._logs / f"{session_id}.log",
            record=self._records / f"{session_id}.json",
            gateway=self._gateways / session_id,
        )

    def prepare(self, session_id: str) -> SessionFiles:
        """Make the session's directories. Raises `ProviderFailed` on a full disk."""
        files = self.of(session_id)
        self.close_gateway(session_id)  # what another sandbox has left there is not this one's
        own = (files.root, files.workspace, files.home, files.run)
        for directory in (self._logs, self._records, self._gateways, *own):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(files.root).free < limits.FREE_DISK_BYTES:
            raise ProviderFailed(f"The disk that holds {self._sandboxes} is full; make room there.", retryable=False)
        files.status.unlink(missing_ok=True)
        files.gateway.mkdir(mode=0o700)
        return files

    def open_log(self, session_id: str) -> int:
        """A descriptor to append to the session's log. It is the sandbox's own, so that it needs nobody to read it."""
        return os.open(self.of(session_id).log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def cap_logs(self) -> None:
        """Cut logs that have grown too long: what was written so far moves to `<name>.1`, the writer goes on at 0."""
        for log in self._logs.glob("*.log"):
            if log.stat().st_size > limits.LOG_BYTES:
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def log_tail(self, session_id: str, start: int) -> str:
        """The end of what was logged since `start` (bytes)."""
        with self.of(session_id).log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - limits.LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()

    def remember(self, session_id: str, pid: int, start_time: int) -> None:
        """Write the record of a running sandbox."""
        record = msgspec.json.encode(Record(pid=pid, start_time=start_time))
        _write_private(self.of(session_id).record, record)

    def forget(self, session_id: str) -> None:
        """The sandbox has ended: its record goes, and the way to its gateway."""
        self.of(session_id).record.unlink(missing_ok=True)
        self.close_gateway(session_id)

    def close_gateway(self, session_id: str) -> None:
        """Remove the folder of the gateway's socket: that it is there says that there is a sandbox."""
        shutil.rmtree(self.of(session_id).gateway, onerror=_make_writable_and_retry)

    def delete(self, session_id: str) -> None:
        """Remove everything of the session but its log."""
        files = self.of(session_id)
        shutil.rmtree(files.root, onerror=_make_writable_and_retry)
        files.record.unlink(missing_ok=True)


def exit_code(status_file: str) -> int | None:
    """The runner's exit code, when bwrap's monitor has written one."""
    return _status_value(status_file, "exit-code")


def first_process(status_file: str) -> int | None:
    """The sandbox's first process, as bwrap's monitor has written it down."""
    return _status_value(status_file, "child-pid")


def _status_value(status_file: str, name: str) -> int | None:
    try:
        lines = Path(status_file).read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        try:
            value = msgspec.json.decode(line, type=dict[str, int]).get(name)
        except msgspec.MsgspecError:
            continue  # half a line: its writer was killed
        if value is not None:
            return value
    return None


def _write_private(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def _make_writable_and_retry(function: object, path: str, error: object) -> None:
    # package caches (Go's, for one) make their directories read-only
    if not os.path.lexists(path):
        return
    parent = os.path.dirname(path)
    os.chmod(parent, 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
