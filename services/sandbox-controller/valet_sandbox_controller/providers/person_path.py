"""What a sandbox is shown of the programs on the PATH of who runs Valet: those, and what they cannot run without.

Outside of homes a program's own directory (`/opt/code-server`) is shown as it is. Of a home only folders of programs
are: those on the PATH, and where their links and `#!` lines lead, each with the libraries beside it. Never a home
itself, `~/.local/share`, `~/.config` or anything else that lies in it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from valet_sandbox_controller import limits
from valet_sandbox_controller.providers.bwrap import Bind

_OF_PEOPLE = ("/home", "/Users")
_HOMES = (*_OF_PEOPLE, "/root", "/var/lib", "/srv")
"""Where people and services keep what is theirs."""

_ITS_OWN = ("/proc", "/sys", "/dev", "/etc", "/run", "/workspace", "/home/agent")
"""What a sandbox has of its own."""

_BESIDE = ("lib", "lib64", "libexec", "pyvenv.cfg")
"""What a `bin` needs from beside it: libraries, and what makes a Python environment of it."""

_DISPATCHERS = "shims"
"""Folders of version managers (pyenv, asdf, mise) whose programs only look for others, by files all over the home."""


class PersonPath(msgspec.Struct, frozen=True, kw_only=True):
    """The programs of a person, for a sandbox."""

    directories: tuple[str, ...]
    """For `PATH`, in the person's order."""
    binds: tuple[Bind, ...]
    """What is to be shown besides."""


def look(path: str, *, home: str, shown: Sequence[str], hidden: Sequence[str], left_out: Sequence[str]) -> PersonPath:
    """What of `path` can be shown.

    `shown` are directories the sandbox sees anyway, `hidden` those of the platform that it must not, in whatever they
    lie; `left_out` are on the PATH but not the person's (the platform's own Python).
    """
    return _Look(home, shown, hidden).all(path, frozenset(left_out))


class _Look:
    def __init__(self, home: str, shown: Sequence[str], hidden: Sequence[str]) -> None:
        self._homes = (*_HOMES, home)
        self._hidden = tuple(os.path.realpath(each) for each in hidden)
        self._shown = list(shown)
        self._binds: list[Bind] = []
        self._seen: set[str] = set()
        self._waiting: list[str] = []

    def all(self, path: str, left_out: frozenset[str]) -> PersonPath:
        directories: list[str] = []
        for entry in dict.fromkeys(os.path.normpath(each) for each in path.split(":") if os.path.isabs(each)):
            usable = os.path.isdir(entry) and os.access(entry, os.R_OK | os.X_OK)
            if not usable or entry in left_out or os.path.basename(entry) == _DISPATCHERS:
                continue
            if self._is_shown(entry):
                directories.append(entry)
            elif self._permitted(entry):
                self._show_folder(entry)
                directories.append(entry)
            self._waiting.append(entry)
        while self._waiting:
            self._follow(self._waiting.pop(0))
        return PersonPath(directories=tuple(directories), binds=tuple(self._binds))

    def _follow(self, folder: str) -> None:
        """Show what the programs of a folder lead to."""
        real = os.path.realpath(folder)
        if real in self._seen or not self._is_shown(folder):
            return
        self._seen.add(real)
        for target in _led_to_from(folder):
            if not self._is_shown(target) and os.path.isfile(target) and os.access(target, os.X_OK):
                self._show_program(target)

    def _show_program(self, program: str) -> None:
        folder = os.path.dirname(program)
        if os.path.basename(folder) == "bin" and self._permitted(folder):
            self._show_folder(folder)
            self._waiting.append(folder)
        elif self._is_a_programs_own(folder):
            self._bind(folder)
        elif self._permitted(program):
            self._bind(program)

    def _show_folder(self, folder: str) -> None:
        parent, name = os.path.split(folder)
        if name == "bin" and self._is_a_programs_own(parent):
            self._bind(parent)
            return
        self._bind(folder)
        if name == "bin" and parent not in self._homes and os.path.dirname(parent) not in _OF_PEOPLE:
            for beside in _BESIDE:
                other = os.path.join(parent, beside)
                if os.path.exists(other) and self._permitted(other):
                    self._bind(other)

    def _is_a_programs_own(self, folder: str) -> bool:
        """Whether it is one program's, for everybody to read: all of it can be shown."""
        real = os.path.realpath(folder)
        return (
            real.count("/") >= 2
            and not any(_inside(real, home) for home in self._homes)
            and self._permitted(folder)
            and os.stat(real).st_mode & 0o005 == 0o005
        )

    def _permitted(self, path: str) -> bool:
        for each in {path, os.path.realpath(path)}:
            if any(_inside(home, each) for home in self._homes) or any(_inside(each, own) for own in _ITS_OWN):
                return False
            if any(_inside(secret, each) or _inside(each, secret) for secret in self._hidden):
                return False
        return True

    def _bind(self, path: str) -> None:
        if not self._is_shown(path) and len(self._binds) < limits.PATH_BINDS:
            self._binds.append(Bind(path, path))
            self._shown.append(path)

    def _is_shown(self, path: str) -> bool:
        return any(_inside(path, directory) for directory in self._shown)


def _led_to_from(folder: str) -> Iterator[str]:
    """Where the links and scripts of a folder lead."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(limits.PATH_PROGRAMS), entries, strict=False):
            with contextlib.suppress(OSError):  # it is not for us to read, or has gone
                yield from _leads_to(entry)


def _leads_to(program: os.DirEntry[str]) -> Iterable[str]:
    """Every file on the way from a link to what it means, or the program that runs a script. Raises `OSError`."""
    if program.is_symlink():
        steps = [program.path]
        while os.path.islink(steps[-1]) and len(steps) < limits.PATH_LINKS:
            steps.append(os.path.normpath(os.path.join(os.path.dirname(steps[-1]), os.readlink(steps[-1]))))
        return dict.fromkeys((*steps[1:], os.path.realpath(program.path)))
    if not program.is_file():
        return ()
    with open(program.path, "rb") as file:
        first = file.read(limits.PATH_FIRST_LINE).partition(b"\n")[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    return (interpreter, os.path.realpath(interpreter)) if os.path.isabs(interpreter) else ()


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
