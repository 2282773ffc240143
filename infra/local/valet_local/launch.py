"""Starting and stopping a platform from another process: for the command line and for tests."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from valet_local import identity, leftovers, limits, lock
from valet_local.assembly import Options
from valet_local.errors import LocalError, NotRunning, StartFailed
from valet_local.layout import Layout, layout
from valet_local.state import State, running


class Platform:
    """A platform that this process has started; as a context manager it is stopped at the end."""

    def __init__(self, places: Layout, state: State, child: subprocess.Popen[bytes]) -> None:
        self.places = places
        self.state = state
        self._child = child

    def stop(self) -> int:
        """Stop it in order: its exit status. Kills what is left after `limits.DOWN_TIMEOUT`."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(limits.DOWN_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            leftovers.end_processes(self.places)
            leftovers.end_sandboxes(self.places)
            return -signal.SIGKILL

    def __enter__(self) -> "Platform":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def command(options: Options, *, with_parent: bool) -> list[str]:
    """The command that is a platform with these options."""
    words = [sys.executable, "-P", "-m", "valet_local.platform", "--data-dir", str(options.data_dir)]
    words += ["--host", options.host, "--port", str(options.port), "--log-level", options.log_level]
    words += ["--config", str(options.config)] if options.config else []
    words += ["--isolation", options.isolation] if options.isolation else []
    words += ["--services", ",".join(options.services)] if options.services is not None else []
    words += ["--quiet"] if options.quiet else []
    words += ["--with-parent"] if with_parent else []
    return words


def start(
    options: Options, *, environment: Mapping[str, str] = os.environ, timeout: float = limits.LAUNCH_TIMEOUT
) -> Platform:
    """Start a platform and wait until it is ready. It ends with this process, too. Blocks.

    Raises `LocalError` with the platform's own words when it does not come up.
    """
    places = layout(options.data_dir)
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryFile() as words:
        child = subprocess.Popen(
            command(options, with_parent=True),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env=dict(environment),
            start_new_session=True,  # a Ctrl-C is ours to handle: the platform must outlive what we do then
        )
        try:
            while child.poll() is None:
                state = running(places)
                if state is not None and state.pid == child.pid:
                    return Platform(places, state, child)
                if time.monotonic() > deadline:
                    raise StartFailed(f"the platform was not ready within {timeout:g} s; see {places.logs}")
                time.sleep(limits.POLL)
        except BaseException:
            child.terminate()
            child.wait()
            raise
        words.seek(0)
        text = words.read().decode(errors="replace").strip()
    raise LocalError(text.rpartition("error: ")[2] or f"the platform ended with status {child.returncode}")


def stop(data_dir: Path) -> bool:
    """`valet down`: stop the platform of a data directory. Whether it went in order. Raises `NotRunning`.

    Also clears away what a platform that was killed has left; that counts as running.
    """
    places = layout(data_dir)
    pid = lock.holder(places.lock)
    holder = identity.identify(pid) if pid else None
    if holder is None:
        left = leftovers.end_processes(places) + leftovers.end_sandboxes(places)
        if not left:
            raise NotRunning(data_dir)
        return False
    identity.send(holder, signal.SIGTERM)
    deadline = time.monotonic() + limits.DOWN_TIMEOUT
    while identity.is_alive(holder):
        if time.monotonic() > deadline:
            identity.end([holder], grace=0.0, first=signal.SIGKILL)
            leftovers.end_processes(places)
            leftovers.end_sandboxes(places)
            return False
        time.sleep(limits.POLL)
    return True
