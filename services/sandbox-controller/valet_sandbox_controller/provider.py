"""What a sandbox provider promises. Callers look at its capabilities, never at its name."""

from enum import Flag, auto
from pathlib import Path
from typing import Protocol

import msgspec


class Capability(Flag):
    """What a provider can do; grows with the providers."""

    ISOLATED = auto()
    """The agent cannot reach the host's files, processes and network but through the portal."""
    KEEPS_WORKSPACE = auto()
    """Workspace and home outlive the sandbox; a new one of the same session finds them."""
    SURVIVES_CONTROLLER = auto()
    """A running sandbox can be taken up again by a restarted controller."""
    HOST_REPOSITORY = auto()
    """A repository on the controller's own disk can be shown to the sandbox."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox may use; applied as far as the machine allows."""

    memory_mb: int
    cpus: float
    pids: int


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are, as seen from inside the sandbox."""

    portal_socket: str
    workspace: str
    home: str
    source: str
    """The host's repository, where one is given."""
    opencode: str
    path: str
    """`PATH` of the agent's commands."""
    gateway_socket: str
    """Where the sandbox's gateway serves for those outside."""
    gateway_port: int = 9000
    """Where it serves as well, on the sandbox's own loopback."""
    xterm_dir: str | None = None
    """The packages of the terminal's page; none where they could not be had."""


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox to be made."""

    session_id: str
    epoch: int
    runner_spec: bytes
    """JSON of `valet_protocol.sandbox_spec.RunnerSpec`; holds secrets. It must reach the runner and nobody else: on its
    standard input where that can be done (`VALET_RUNNER_SPEC=-`), else as a file, which the runner removes."""
    source: "HostRepository | None"
    limits: Limits


class HostRepository(msgspec.Struct, frozen=True, kw_only=True):
    """A git repository on the host's disk, to be cloned from inside."""

    path: Path
    also: tuple[Path, ...] = ()
    """Further directories git needs to read it, at their own paths (a linked worktree's real repository)."""


class SandboxRef(msgspec.Struct, frozen=True, kw_only=True):
    """A running sandbox as it is stored: everything is found again from this."""

    provider: str
    id: str
    pid: int = 0
    """Local providers: the process whose end is the sandbox's end, as numbered on the host."""
    start_time: int = 0
    """Its start in clock ticks since boot (field 22 of /proc/<pid>/stat): pids are used again."""
    monitor: int = 0
    """Local providers: the process that waits for it; 0 for none."""
    monitor_start_time: int = 0
    status_file: str = ""
    """Where the exit code is written, so that it is known although nobody was waiting."""


class Running(msgspec.Struct, frozen=True):
    """The sandbox is there."""


class Ended(msgspec.Struct, frozen=True):
    """The sandbox is not there any more."""

    exit_code: int | None
    """Of its runner, where that is known."""


Status = Running | Ended


class SandboxProvider(Protocol):
    """Makes, watches and ends sandboxes. All but `create` is idempotent and never raises for one that is gone."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capability: ...

    @property
    def isolation(self) -> str:
        """How agents are isolated, for people: e.g. `bwrap`, `none`."""
        ...

    async def check(self) -> None:
        """Whether sandboxes can be made at all; called when the service starts. Raises `SandboxRefused`."""
        ...

    def places(self, session_id: str) -> Places:
        """Where things will be inside the session's sandbox."""
        ...

    async def create(self, spec: SandboxSpec) -> SandboxRef:
        """Make the sandbox and start its runner. Raises `SandboxRefused`; then nothing is left running."""
        ...

    async def status(self, ref: SandboxRef) -> Status: ...

    async def wait(self, ref: SandboxRef) -> Ended:
        """Return when the sandbox ends, at once when it does (no polling)."""
        ...

    async def terminate(self, ref: SandboxRef, *, grace: float) -> None:
        """End it: ask, wait `grace` seconds, kill. Returns when nothing of it is left."""
        ...

    async def abandon(self, session_id: str) -> None:
        """End whatever a crash in the middle of `create` left of this session."""
        ...

    async def delete_workspace(self, session_id: str) -> None:
        """Remove the session's workspace and home for good."""
        ...

    async def tidy(self) -> None:
        """Housekeeping, called about once a minute."""
        ...
