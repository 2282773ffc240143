"""For tests of saved work: a repository, sandboxes of one session without OpenCode, the store between them."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec
from valet_protocol.events.agent import TurnChanged, WorkSaved
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import git_environment, workspace
from valet_runner.objects import Objects
from valet_runner.testing import search_path
from valet_runner.testing_objects import ObjectServer
from valet_runner.work import Work

State = dict[bytes, tuple[int, bytes]]


def git(folder: Path, *arguments: str) -> str:
    """What git says."""
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="replace").strip()


def state(folder: Path) -> State:
    """Every file with its mode and content, `.git` and what is ignored apart."""
    found: State = {}
    for top, folders, files in os.walk(os.fsencode(folder)):
        folders[:] = [name for name in folders if name not in (b".git", b"ignored", b"nested")]
        for name in files + [name for name in folders if os.path.islink(os.path.join(top, name))]:
            path = os.path.join(top, name)
            mode = os.lstat(path).st_mode
            link = stat.S_ISLNK(mode)
            content = os.readlink(path) if link else Path(os.fsdecode(path)).read_bytes()
            kind = stat.S_IFMT(mode) | (0 if link else mode & 0o100)
            found[os.path.relpath(path, os.fsencode(folder))] = (kind, content)
    return found


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def make_origin(path: Path) -> None:
    """A repository with a file of every kind."""
    (path / "deep" / "er").mkdir(parents=True)
    (path / "hello.txt").write_text("hello\n")
    (path / "kept.txt").write_text("kept\n")
    (path / "gone.txt").write_text("gone\n")
    (path / "old name.txt").write_text("moved\n" * 50)
    (path / "tool.sh").write_text("#!/bin/sh\n")
    (path / "picture.png").write_bytes(bytes(range(256)) * 20)
    (path / "deep" / "er" / "file").write_text("deep\n")
    (path / "becomes-a-folder").write_text("file\n")
    (path / "link").symlink_to("hello.txt")
    (path / ".gitignore").write_text("ignored/\n")
    (path / ".gitattributes").write_text("*.bat text eol=crlf\n")
    (path / "run.bat").write_bytes(b"echo\r\n")
    git(path, "init", "--quiet", "-b", "main")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "First")


class Sandbox:
    """A workspace and the work of it."""

    def __init__(self, spec: RunnerSpec, store: ObjectServer) -> None:
        self.spec = spec
        self.env = git_environment.environment(spec, relay_port=None)
        self.folder = Path(spec.workspace)
        self.objects = Objects(str(store.path), store.token)
        self.base: str | None = None
        self.work = Work(spec, self.env, self.objects, None)

    async def boot(self, *, base: str | None = None, restores: bool = False) -> "Sandbox":
        """Make the workspace."""
        prepared = await workspace.prepare(self.spec, self.env, base_commit=base, restores=restores)
        self.base = prepared.base
        self.work = Work(self.spec, self.env, self.objects, self.base)
        return self

    async def turn(self, act: Callable[[Path], object]) -> tuple[TurnChanged | None, WorkSaved | None]:
        """A turn in which this is done; gives what is said of it."""
        turn_id = new_id()
        await self.work.begin(turn_id)
        act(self.folder)
        said = await self.work.end(turn_id, {}, None)
        changed = next((data for data in said if isinstance(data, TurnChanged)), None)
        saved = next((data for data in said if isinstance(data, WorkSaved)), None)
        return changed, saved


class Place:
    """Where one session's sandboxes come and go. Use with `async with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin = folder / "origin"
        self.session_id = new_id()
        # pytest's own folders are too long for a socket
        self.store = ObjectServer(Path("/tmp") / f"vrw-{os.getpid()}-{new_id()[-8:]}.sock")

    async def __aenter__(self) -> Self:
        make_origin(self.origin)
        await self.store.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.__aexit__()
        self.store.path.unlink(missing_ok=True)

    def sandbox(self, name: str = "second", **changes: object) -> Sandbox:
        """One that was not there before; only the session's id is the others'."""
        spec = RunnerSpec(
            session_id=self.session_id,
            epoch=1,
            nats_creds="",
            portal_socket="",
            portal_token="",
            workspace=str(self.folder / name / "workspace"),
            home=str(self.folder / name / "home"),
            repo=str(self.origin),
            branch=None,
            model="scripted/scripted-1",
            providers=[],
            opencode="/nonexistent/opencode",
            path=search_path(),
        )
        Path(spec.home).mkdir(parents=True)
        git_environment.write_config(Path(spec.home))
        return Sandbox(msgspec.structs.replace(spec, **changes), self.store)


def ravage(folder: Path) -> None:
    """Everything an agent may do to files."""
    (folder / "hello.txt").write_text("hello\nagain, without a line end")
    (folder / "gone.txt").unlink()
    (folder / "old name.txt").rename(folder / "neuer Name – ü.txt")
    (folder / "tool.sh").chmod(0o755)
    (folder / "picture.png").write_bytes(bytes(reversed(range(256))) * 30)
    (folder / "becomes-a-folder").unlink()
    (folder / "becomes-a-folder").mkdir()
    (folder / "becomes-a-folder" / "inside").write_text("in a folder\n")
    shutil.rmtree(folder / "deep")
    (folder / "deep").write_text("now a file\n")
    (folder / "link").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "dangling").symlink_to("nowhere at all")
    (folder / 'new\nline and "quotes"\tand tab').write_text("odd\n")
    (folder / os.fsdecode(b"latin-\xe9")).write_bytes(b"bytes in the name\0\xff")
    (folder / "empty").touch()
    (folder / "script").write_text("#!/bin/sh\n")
    (folder / "script").chmod(0o755)
    (folder / "run.bat").write_bytes(b"echo\r\necho two\r\n")
    (folder / "-x").write_text("looks like an option\n")
    (folder / ":(top)x").write_text("looks like magic\n")
    (folder / "ignored").mkdir()
    (folder / "ignored" / "cache").write_text("not saved\n")
