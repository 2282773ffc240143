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
    """What it is now."""
    detail: str = ""
    """Why, for people."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the process service, running or ended."""

    id: str
    """`proc_…`."""
    command: str
    """The program."""
    args: list[str] = []
    """Its arguments."""
    cwd: str
    """Where it started."""
    tag: str | None = None
    """A name by which it is found again; no two running processes have the same."""
    label: str = ""
    """What people see."""
    pid: int
    """As numbered inside the sandbox."""
    pty: bool
    """Whether it has a terminal."""
    rows: int | None = None
    """Height of the terminal, characters."""
    cols: int | None = None
    """Its width."""
    session_id: str | None = None
    """The session whose agent is shown the command and its output; none for nobody's."""
    status: Literal["running", "exited"] = "running"
    """`exited` when all of its output is read, too."""
    exit_code: int | None = None
    """None while it runs, and where a signal ended it."""
    signal: str | None = None
    """The signal that ended it, e.g. `SIGKILL`."""
    output_bytes: int = 0
    """How much it has written so far: the offset of its next byte."""
    created_at: str
    """RFC 3339."""
    exited_at: str | None = None
    """RFC 3339."""


class ProcessCreated(Data, frozen=True, kw_only=True):
    """A process was started."""

    process: ProcessInfo
    """As it began."""


class ProcessUpdated(Data, frozen=True, kw_only=True):
    """Its label or its terminal's size changed."""

    process: ProcessInfo
    """As it is now."""


class ProcessExited(Data, frozen=True, kw_only=True):
    """It has ended, with all of its process group."""

    process: ProcessInfo
    """As it ended."""


class ProcessDeleted(Data, frozen=True, kw_only=True):
    """Its record is gone."""

    process_id: str
    """Which one."""


class Tunnel(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the sandbox that people reach at an address of its own, or at `/t/<name>/` of its gateway."""

    name: str
    """The word in its address."""
    port: int
    """On which something listens in the sandbox."""
    protocol: Literal["http", "ws"] = "http"
    """What it speaks."""
    description: str = ""
    """For people."""
    keep_prefix: bool = False
    """Whether what listens there is asked for `/t/<name>/…` as it stands, instead of for what is below it."""


class TunnelsChanged(Data, frozen=True, kw_only=True):
    """A tunnel was registered or removed: these are all there are now."""

    tunnels: list[Tunnel]
    """By name."""


class ImageShown(Data, frozen=True, kw_only=True):
    """The agent shows a picture, e.g. a screenshot, in the conversation."""

    turn_id: str | None = None
    """In which turn; none for outside of one."""
    image_id: str
    """Made of the request: a repeated one shows the same image."""
    object: str
    """Its name in the object store, `sessions/<session>/images/<image>`."""
    media_type: str
    """What its content is, e.g. `image/png`."""
    bytes: int
    """Its size."""
    sha256: str
    """Of its content, in hexadecimal digits."""
    caption: str = ""
    """What is to be seen, in the agent's words."""


class ChannelReplied(Data, frozen=True, kw_only=True):
    """The agent says something to a channel on its own, besides its answer to the prompt."""

    turn_id: str | None = None
    """In which turn; none for outside of one."""
    reply_id: str
    """Made of the request: a repeated one is the same reply."""
    channel: str
    """e.g. `web:default`, `slack:C123:17.2`."""
    text: str
    """What it says, Markdown."""
    image_ids: list[str] = []
    """Images it has shown before and sends along."""
