"""Events of source `agent` about the machine the agent works on: its boot, processes, tunnels, what it shows."""

from typing import Literal

import msgspec

from valet_protocol.events.envelope import Data


class BootStepCompleted(Data, frozen=True, kw_only=True):
    """One step of a sandbox's boot is over."""

    step: str
    """`environment`, `git`, `clone`, `persona`, `desktop`, `vscode`, `terminal`, `gateway`, `processes`, `opencode`."""
    ms: int
    """How long it took, milliseconds."""
    outcome: Literal["ok", "absent", "failed"]
    """`absent`: this machine does not have it; `failed`: it has it and it did not start. The session goes on."""
    detail: str = ""
    """Why, for people."""


class ServiceChanged(Data, frozen=True, kw_only=True):
    """A part of the sandbox that may be missing is there, is gone, or is there again."""

    service: str
    """`vscode`, `vnc`, `ttyd`, `gateway`, `processes`."""
    state: Literal["running", "stopped"]
    detail: str = ""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the process service, running or ended."""

    id: str
    """`proc_…`."""
    command: str
    args: list[str] = []
    cwd: str
    tag: str | None = None
    """A name by which it is found again; no two running processes have the same."""
    label: str = ""
    """What people see."""
    pid: int
    """As numbered inside the sandbox."""
    pty: bool
    rows: int | None = None
    cols: int | None = None
    session_id: str | None = None
    """The session whose agent is shown the command and its output; none for nobody's."""
    status: Literal["running", "exited"] = "running"
    exit_code: int | None = None
    """None while it runs, and where a signal ended it."""
    signal: str | None = None
    """The signal that ended it, e.g. `SIGKILL`."""
    output_bytes: int = 0
    """How much it has written so far: the offset of its next byte."""
    created_at: str
    """RFC 3339."""
    exited_at: str | None = None


class ProcessCreated(Data, frozen=True, kw_only=True):
    """A process was started."""

    process: ProcessInfo


class ProcessUpdated(Data, frozen=True, kw_only=True):
    """Its label or its terminal's size changed."""

    process: ProcessInfo


class ProcessExited(Data, frozen=True, kw_only=True):
    """It has ended, with all of its process group."""

    process: ProcessInfo


class ProcessDeleted(Data, frozen=True, kw_only=True):
    """Its record is gone."""

    process_id: str


class Tunnel(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the sandbox that people reach at `/t/<name>/` of its gateway."""

    name: str
    port: int
    protocol: Literal["http", "ws"] = "http"
    description: str = ""


class TunnelsChanged(Data, frozen=True, kw_only=True):
    """A tunnel was registered or removed: these are all there are now."""

    tunnels: list[Tunnel]


class ImageShown(Data, frozen=True, kw_only=True):
    """The agent shows a picture, e.g. a screenshot, in the conversation."""

    turn_id: str | None = None
    image_id: str
    object: str
    """Its name in the object store, `sessions/<session>/images/<image>`."""
    media_type: str
    bytes: int
    sha256: str
    caption: str = ""


class ChannelReplied(Data, frozen=True, kw_only=True):
    """The agent says something to a channel on its own, besides its answer to the prompt."""

    turn_id: str | None = None
    reply_id: str
    channel: str
    """e.g. `web:default`, `slack:C123:17.2`."""
    text: str
    image_ids: list[str] = []
