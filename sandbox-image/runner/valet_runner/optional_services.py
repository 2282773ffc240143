"""What a sandbox may have beside the agent: an editor, a desktop, a terminal of the machine's own. Which programs each
is made of. Pure, but for `clean` and `settle`.

Commands and start-up times were measured with code-server 4.139, Xvfb 21.1, x11vnc 0.9.16, websockify 0.10, noVNC 1.3.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from valet_runner import limits

Name = Literal["vscode", "vnc", "ttyd"]

STEPS: dict[Name, str] = {"vscode": "vscode", "vnc": "desktop", "ttyd": "terminal"}
"""The step of the boot in which each is looked for."""

PORTS: dict[Name, int] = {"vscode": 8765, "vnc": 6080, "ttyd": 7681}
"""Where each is found inside the sandbox; another where somebody else is there."""

_NEEDS: dict[Name, tuple[str, ...]] = {
    "vscode": ("code-server",),
    "vnc": ("Xvfb", "fluxbox", "x11vnc", "websockify"),
    "ttyd": ("ttyd",),
}
_DISPLAY = 99
_NOVNC = "/usr/share/novnc"
_STYLE = "/usr/share/fluxbox/styles/bora_black"
"""One of fluxbox's own, with a plain background."""

_TITLES: dict[Name, str] = {"vscode": "VS Code", "vnc": "The desktop", "ttyd": "The terminal"}

_EDITOR_SETTINGS = {
    "chat.disableAIFeatures": True,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}
"""Of a person who has none: the agent of this workspace is Valet's. VS Code's own would open a panel, want an account
elsewhere, and hold 110 MB (measured with 1.139)."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One of the processes of a service."""

    command: tuple[str, ...]
    listens: int | str | None = None
    """TCP port on loopback, or unix socket, which can be connected to when it is ready; none: it is not waited for."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a service is started: its programs in order. The last one is what visitors talk to."""

    name: Name
    programs: tuple[Program, ...]
    port: int
    """TCP port for visitors."""
    unused: float | None = None
    """Seconds without any visitor after which it is ended; none: never, because the agent's programs may use it too."""


def title(name: Name) -> str:
    """What people call it, at the beginning of a sentence."""
    return _TITLES[name]


def missing(name: Name, find: Callable[[str], str | None], *, novnc: str = _NOVNC) -> list[str]:
    """What of a service this machine does not have. `find` gives a program's path."""
    lacking = [program for program in _NEEDS[name] if find(program) is None]
    return [*lacking, "novnc"] if name == "vnc" and not lacking and not os.path.isdir(novnc) else lacking


def why_missing(program: str, search: str) -> str:
    """A missing program, and where it would be if its link led anywhere: what it leads to may be of the machine and
    not shown to its sandboxes. `search`: a `PATH`."""
    for folder in search.split(os.pathsep):
        path = os.path.join(folder, program)
        if os.path.islink(path) and not os.path.exists(path):
            return f"{program} ({path} leads to {os.readlink(path)}, which is not in the sandbox)"
    return program


def display(find: Callable[[str], str | None], *, novnc: str = _NOVNC) -> str | None:
    """The desktop's, for programs that draw; none where there can be none."""
    return None if missing("vnc", find, novnc=novnc) else f":{_DISPLAY}"


def recipe(
    name: Name, *, find: Callable[[str], str | None], free_port: Callable[[], int], home: str, workspace: str
) -> Recipe:
    """How to start a service whose programs are all there. `free_port` gives a TCP port that nobody uses."""

    def path(program: str) -> str:
        return find(program) or program

    port = free_port()
    match name:
        case "vscode":
            command = (
                *(path("code-server"), "--bind-addr", f"127.0.0.1:{port}", "--auth", "none"),
                *("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
                *("--user-data-dir", str(_editor(home)), "--extensions-dir", str(_editor(home) / "extensions")),
                *("--disable-getting-started-override", "--app-name", "Valet", workspace),
            )
            programs = [Program(command=command, listens=port)]
        case "vnc":
            vnc = free_port()
            screen = ("-screen", "0", "1920x1080x24", "-nolisten", "tcp")
            programs = [
                Program(command=(path("Xvfb"), f":{_DISPLAY}", *screen), listens=f"/tmp/.X11-unix/X{_DISPLAY}"),
                Program(command=(path("fluxbox"), "-display", f":{_DISPLAY}")),
                Program(
                    command=(
                        *(path("x11vnc"), "-display", f":{_DISPLAY}", "-rfbport", str(vnc), "-localhost"),
                        # no password: the gateway lets nobody in who is not meant to be
                        *("-forever", "-shared", "-nopw", "-quiet"),
                    ),
                    listens=vnc,
                ),
                Program(
                    command=(path("websockify"), "--web", _NOVNC, f"127.0.0.1:{port}", f"127.0.0.1:{vnc}"),
                    listens=port,
                ),
            ]
        case "ttyd":
            shell = ("bash", "-l")
            programs = [
                Program(
                    command=(path("ttyd"), "-W", "-i", "127.0.0.1", "-p", str(port), "-w", workspace, *shell),
                    listens=port,
                )
            ]
    unused = limits.EDITOR_UNUSED if name == "vscode" else None
    return Recipe(name=name, programs=tuple(programs), port=port, unused=unused)


def settle(name: Name, *, home: str) -> None:
    """Write what a service reads at its start and would miss; what is there stays."""
    match name:
        case "vnc":
            # its usual style wants a wallpaper, and says in a window of its own that no program is there to draw one;
            # and where it has no folder of its own yet, it puts that style into any other file it is given (measured)
            style = f"session.styleFile: {_STYLE}\nsession.menuFile: /etc/X11/fluxbox/fluxbox-menu\n"
            _write_new(_desktop(home) / "init", style)
        case "vscode":
            _write_new(_editor(home) / "User" / "settings.json", json.dumps(_EDITOR_SETTINGS, indent=4) + "\n")
        case "ttyd":
            pass


def _write_new(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def clean(name: Name, *, home: str, tmp: Path = Path("/tmp")) -> list[Path]:
    """Remove the locks that a service left which was not ended in order, e.g. in a snapshot: the next would not start.
    A lock whose holder lives stays. Gives what was removed."""
    stale: list[Path] = []
    match name:
        case "vnc":
            lock = tmp / f".X{_DISPLAY}-lock"
            if not _held(lock):
                stale = [lock, tmp / ".X11-unix" / f"X{_DISPLAY}"]
        case "vscode":
            stale = [path for pattern in ("*.lock", "*.sock") for path in _editor(home).glob(pattern)]
        case "ttyd":
            pass
    removed: list[Path] = []
    for path in stale:
        with contextlib.suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed


def _held(lock: Path) -> bool:
    """Whether the process whose number is in the file is there."""
    try:
        os.kill(int(lock.read_text()), 0)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


def _desktop(home: str) -> Path:
    return Path(home) / ".fluxbox"


def _editor(home: str) -> Path:
    return Path(home) / ".local" / "share" / "code-server"
