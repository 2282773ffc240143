"""The command line of bubblewrap for a sandbox. Pure: what is on the host is told, nothing is looked up."""

from collections.abc import Sequence

import msgspec

UID = 1000
"""User and group of the agent, inside."""


class Bind(msgspec.Struct, frozen=True):
    """A path of the host shown in the sandbox."""

    source: str
    target: str
    writable: bool = False


class Symlink(msgspec.Struct, frozen=True):
    """A symbolic link inside, e.g. `/bin` → `usr/bin`."""

    target: str
    path: str


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the command line is made of."""

    bwrap: str
    hostname: str
    symlinks: tuple[Symlink, ...]
    binds: tuple[Bind, ...]
    """In order: a later one may lie inside an earlier one."""
    environment: tuple[tuple[str, str], ...]
    directory: str
    """Working directory inside."""
    tmp_bytes: int | None
    """Size of /tmp; none for a bwrap without `--size`."""
    command: tuple[str, ...]
    info_fd: int | None = None
    """Where bwrap writes the sandbox's first process id as the host numbers it."""
    status_fd: int | None = None
    """Where its monitor writes the exit code."""
    block_fd: int | None = None
    """bwrap makes everything, then waits for a byte here before it starts the command."""


ISOLATION: tuple[str, ...] = (
    "--unshare-all",
    "--unshare-user",
    "--uid",
    str(UID),
    "--gid",
    str(UID),
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--new-session",
    "--clearenv",
)
"""What locks a sandbox in. As root, `--unshare-all` alone keeps every capability (measured).

There is no `--die-with-parent`: a sandbox outlives its controller and is taken up again by the next.
"""

KERNEL: tuple[str, ...] = ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
"""A /proc of its own whose kernel settings are read-only.

Without the second mount the settings can be written by a sandbox that root started: inside it is user 1000 without
capabilities, outside it is user 0, and /proc/sys asks for nothing else (measured: core_pattern of the host changed).
"""


def arguments(box: Box) -> list[str]:
    """The whole command line."""
    line = [box.bwrap, *ISOLATION, "--hostname", box.hostname, "--chdir", box.directory]
    for name, value in box.environment:
        line += ["--setenv", name, value]
    for link in box.symlinks:
        line += ["--symlink", link.target, link.path]
    line += KERNEL
    if box.tmp_bytes is not None:
        line += ["--size", str(box.tmp_bytes)]
    line += ["--tmpfs", "/tmp", "--symlink", "/tmp", "/var/tmp"]
    for bind in box.binds:
        line += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]
    # what is not bound is a file system of the sandbox's own: an agent could write /etc/ld.so.preload there, and read
    # what the programs are told that the runner starts later (measured)
    line += ["--remount-ro", "/"]
    for option, descriptor in (
        ("--info-fd", box.info_fd),
        ("--json-status-fd", box.status_fd),
        ("--block-fd", box.block_fd),
    ):
        if descriptor is not None:
            line += [option, str(descriptor)]
    return [*line, "--", *box.command]


def probe(bwrap: str) -> list[str]:
    """A command line that succeeds where sandboxes can be made: the same isolation around `true`."""
    return [bwrap, *ISOLATION, "--ro-bind", "/", "/", *KERNEL, "--tmpfs", "/tmp", "--", "true"]


def without_covered(binds: Sequence[Bind]) -> tuple[Bind, ...]:
    """Leave out read-only binds of a path onto itself that lies inside an earlier such bind."""
    kept: list[Bind] = []
    for bind in binds:
        covered = any(
            bind.source == bind.target and other.source == other.target and _inside(bind.source, other.source)
            for other in kept
        )
        if not covered:
            kept.append(bind)
    return tuple(kept)


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
