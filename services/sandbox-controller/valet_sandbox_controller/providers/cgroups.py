"""Resource limits of a sandbox: control groups where they can be written, else what `prlimit` offers.

Version 1 (one tree per controller) and version 2 (one tree) are both in use. What cannot be set is left out: the
limits protect the machine from an agent's mistakes; the isolation does not rest on them.
"""

import asyncio
import contextlib
import os
import re
import resource
import time
from pathlib import Path

import msgspec
from valet_service import logs

from valet_sandbox_controller import limits
from valet_sandbox_controller.provider import Limits

_log = logs.get(__name__)
_PERIOD_US = 100_000
_CONTROLLERS = ("memory", "pids", "cpu")


class Setting(msgspec.Struct, frozen=True):
    """One value for one file of a control group."""

    controller: str
    file: str
    value: str


def settings(wanted: Limits, version: int) -> tuple[Setting, ...]:
    """What to write where. The memory limit includes swap, otherwise an agent's leak is the machine's thrashing."""
    size = str(wanted.memory_mb << 20)
    quota = int(wanted.cpus * _PERIOD_US)
    if version == 2:
        return (
            Setting("memory", "memory.max", size),
            Setting("memory", "memory.swap.max", "0"),
            Setting("pids", "pids.max", str(wanted.pids)),
            Setting("cpu", "cpu.max", f"{quota} {_PERIOD_US}"),
        )
    return (
        Setting("memory", "memory.limit_in_bytes", size),
        Setting("memory", "memory.memsw.limit_in_bytes", size),
        Setting("pids", "pids.max", str(wanted.pids)),
        Setting("cpu", "cpu.cfs_period_us", str(_PERIOD_US)),
        Setting("cpu", "cpu.cfs_quota_us", str(quota)),
    )


class ControlGroups:
    """The control groups of this machine, as far as this process may write them."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> None:
        self._parents: dict[str, Path] = {}
        self.version = 2 if (root / "cgroup.controllers").exists() else 1
        paths = dict(_memberships(own))
        for controller in _CONTROLLERS:
            # below our own group where it is visible (limits set on us stay in force), else below the root
            tree = root if self.version == 2 else root / controller
            mine = tree / paths.get("" if self.version == 2 else controller, "").lstrip("/")
            # version 2 forbids processes beside child groups everywhere but in the root
            parent = tree if self.version == 2 or not mine.is_dir() else mine
            try:
                (parent / "valet").mkdir(exist_ok=True)
                if self.version == 2:
                    for level in (parent, parent / "valet"):
                        (level / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                _log.info("cgroup_not_writable", controller=controller, error=str(error))
                continue
            if os.access(parent / "valet", os.W_OK):  # it may be there and be another user's
                self._parents[controller] = parent / "valet"

        self._sweep()

    @property
    def controllers(self) -> tuple[str, ...]:
        """Those that can be used."""
        return tuple(self._parents)

    def join(self, name: str, pid: int, wanted: Limits) -> None:
        """Put a process, and with it all it will start, into a group of that name with those limits."""
        for setting in settings(wanted, self.version):
            if setting.controller in self._parents:
                group = self._parents[setting.controller] / name
                try:
                    group.mkdir(exist_ok=True)
                    (group / setting.file).write_text(setting.value)
                except OSError as error:  # swap accounting, for one, is often not compiled in
                    _log.debug("cgroup_setting_refused", file=setting.file, error=str(error))
        for controller in self._parents:
            try:
                (self._parents[controller] / name / "cgroup.procs").write_text(str(pid))
            except ProcessLookupError:
                return  # it ended already; whoever watches it will say so
            except OSError as error:
                _log.warning("cgroup_not_joined", controller=controller, error=str(error))

    def _sweep(self) -> None:
        # groups of sandboxes that ended while no controller was there; one in use refuses to be removed, and one
        # that is just being made (by another installation) is too young
        for parent in dict.fromkeys(self._parents.values()):
            for group in parent.iterdir():
                with contextlib.suppress(OSError):
                    if group.is_dir() and group.stat().st_mtime < time.time() - limits.CGROUP_AGE:
                        group.rmdir()

    async def remove(self, name: str) -> None:
        """Remove a group after its last process; the kernel may need a moment to see that it was the last."""
        for parent in dict.fromkeys(self._parents.values()):
            for _ in range(20):
                try:
                    (parent / name).rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    break
            else:
                _log.info("cgroup_left_behind", group=str(parent / name))


def limit_process(pid: int, wanted: Limits) -> None:
    """Limits that need no control group. None on address space: V8 reserves far more than it uses."""
    ceiling = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    files = limits.OPEN_FILES if ceiling == resource.RLIM_INFINITY else min(limits.OPEN_FILES, ceiling)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    if os.getuid() != 0 and _kernel() >= (5, 14):
        # root is exempt; before 5.14 the user's processes outside of the sandbox are counted too
        resource.prlimit(pid, resource.RLIMIT_NPROC, _nproc(pid, wanted.pids))


def _nproc(pid: int, wanted: int) -> tuple[int, int]:
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return (allowed if soft == resource.RLIM_INFINITY else min(soft, allowed), allowed)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _memberships(file: Path) -> list[tuple[str, str]]:
    try:
        lines = [line.split(":", 2) for line in file.read_text().splitlines()]
    except OSError:
        return []
    return [(controller, line[2]) for line in lines for controller in line[1].split(",")]
