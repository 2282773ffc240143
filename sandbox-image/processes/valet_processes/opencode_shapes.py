"""OpenCode's words for terminals, and ours in them. Pure. Measured: OpenCode 1.18 and its OpenAPI document."""

import os.path
from collections.abc import Iterable
from typing import Literal

import msgspec
from valet_protocol.events.machine import ProcessInfo

from valet_processes.requests import Create, Size

DEFAULT_SIZE = Size(rows=24, cols=80)
"""What OpenCode's terminals begin with; a client sends its own at once."""

ENVIRONMENT = {"TERM": "xterm-256color", "OPENCODE_TERMINAL": "1"}

_NOT_POSIX = {"fish", "nu"}
"""Shells OpenCode does not take for its commands."""


class PtyCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /pty`."""

    command: str | None = None
    args: list[str] = []
    cwd: str | None = None
    title: str = ""
    env: dict[str, str] = {}


class PtyUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `PUT /pty/{id}`."""

    title: str | None = None
    size: Size | None = None


class Pty(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal."""

    id: str
    title: str
    command: str
    args: list[str]
    cwd: str
    status: Literal["running", "exited"]
    pid: int


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    """A shell of this machine."""

    path: str
    name: str
    acceptable: bool


def pty_id(process_id: str) -> str:
    """OpenCode's clients want ids that begin with `pty`."""
    return "pty_" + process_id.removeprefix("proc_")


def process_id(id: str) -> str:
    """The inverse of `pty_id`; nobody's id for anything else."""
    return "proc_" + id.removeprefix("pty_") if id.startswith("pty_") else ""


def pty(info: ProcessInfo) -> Pty:
    """A process with a terminal as OpenCode shows it."""
    return Pty(
        id=pty_id(info.id),
        title=info.label or f"Terminal {info.id[-4:]}",
        command=info.command,
        args=info.args,
        cwd=info.cwd,
        status=info.status,
        pid=info.pid,
    )


def create(request: PtyCreate, *, shell: str, directory: str | None) -> Create:
    """What is to be started. A shell is a login shell, as OpenCode's are."""
    command = request.command or shell
    login = ["-l"] if os.path.basename(command).endswith("sh") else []
    return Create(
        command=command,
        args=[*request.args, *login],
        cwd=request.cwd or directory,
        env=request.env,
        label=request.title,
        pty=DEFAULT_SIZE,
    )


def shells(etc_shells: str, existing: Iterable[str]) -> list[Shell]:
    """Of the shells of `/etc/shells`, those that exist, one per name."""
    there = set(existing)
    found: dict[str, Shell] = {}
    for line in etc_shells.splitlines():
        path = line.partition("#")[0].strip()
        name = os.path.basename(path)
        if path in there and name not in found:
            found[name] = Shell(path=path, name=name, acceptable=name not in _NOT_POSIX)
    return list(found.values())


def preferred(environment_shell: str | None, found: Iterable[Shell]) -> str:
    """The shell a terminal gets that names none."""
    acceptable = {shell.path: shell.name for shell in found if shell.acceptable}
    if environment_shell and os.path.basename(environment_shell) not in _NOT_POSIX:
        return environment_shell
    for wanted in ("bash", "zsh"):
        for path, name in acceptable.items():
            if name == wanted:
                return path
    return "sh"
