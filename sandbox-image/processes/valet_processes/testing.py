"""For tests of whoever uses processes: a real process service of one's own, to be killed at will."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import ProcessesSpec

from valet_processes import limits


class ProcessService:
    """`python -m valet_processes` on a socket in `folder`. Use with `with`.

    `start` after `kill` is the same service again: same socket, same records.
    """

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, *, run_by: Sequence[str] = ()) -> None:
        """`environment` is added to that of its processes; `run_by` is a program that runs it, with its arguments."""
        self._run_by = run_by
        folder.mkdir(parents=True, exist_ok=True)
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.spec = ProcessesSpec(
            socket=str(folder / "processes.sock"),
            workspace=str(self.workspace),
            spool_dir=str(folder / "spool"),
            environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **(environment or {})},
            session_id="s1",
        )
        self.log = folder / "processes.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ProcessService":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the service itself."""
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it serves. Raises `TimeoutError` with its last words."""
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [*self._run_by, sys.executable, "-m", "valet_processes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdin
        assert process.stdout
        process.stdin.write(msgspec.json.encode(self.spec))
        process.stdin.close()
        deadline = time.monotonic() + limits.TEST_START
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            if not waiting.select(deadline - time.monotonic()) or process.stdout.readline() != b"READY\n":
                self.kill()
                raise TimeoutError(f"the process service did not start: {self.log.read_text()[-2000:]}")

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        status = process.wait(limits.TEST_START)
        if process.stdout:
            process.stdout.close()
        return status
