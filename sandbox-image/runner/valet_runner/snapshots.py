"""Snapshots of the workspace: trees of all tracked and untracked files, ignored ones left out.

They are made with a repository of the runner's own beside the workspace's, which lends its objects: neither the index
nor the objects of the workspace's repository are touched, and nothing its configuration or the agent's names is run:
no hook, filter, file system monitor or diff program. Only how git is to take line ends and modes is read from there.
"""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import processes, snapshot_files, work_limits, workspace_git
from valet_runner.errors import GitFailed
from valet_runner.snapshot_files import Seen
from valet_runner.work_limits import Bounds

_SETTINGS = r"^core\.(filemode|autocrlf|eol|symlinks|ignorecase)$"
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace at one moment."""

    tree: str
    """Git's id of it, in the runner's own repository."""
    left_out: list[Seen]
    """Files that did not fit; a tracked one is in the tree as it was last staged."""


class _Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace's repository."""

    index: Path
    objects: Path
    exclude: Path
    format: str
    """Of its object ids."""
    settings: list[str]
    """Options for git."""


class Snapshots:
    """Takes and compares snapshots of one workspace. Everything raises `GitFailed`; the time is the caller's to
    bound."""

    def __init__(self, spec: RunnerSpec, env: Mapping[str, str]) -> None:
        self._folder = spec.workspace
        self._env = env
        self._own = Path(spec.home) / ".valet" / "snapshots.git"
        self._kept: frozenset[bytes] = frozenset()

    @property
    def possible(self) -> bool:
        """Whether the workspace has a repository."""
        return (Path(self._folder) / ".git").exists()

    async def take(self, bounds: Bounds = work_limits.FULL) -> Snapshot:
        """The workspace as it is now."""
        there = await self._look()
        with tempfile.TemporaryDirectory(prefix="valet-index-") as folder:
            index = Path(folder) / "index"
            if there.index.exists():
                # with its times: git compares them with those of the files
                shutil.copy2(there.index, index)
            try:
                return await self._take(there, index, bounds)
            except GitFailed:
                # an index git can read only in its own place, or a file that vanished meanwhile
                index.unlink(missing_ok=True)
                head = await self._in_workspace("rev-parse", "--verify", "--quiet", "HEAD^{tree}", fine=(0, 1))
                if head:
                    await self._git(there, index, "read-tree", head.decode().strip())
                return await self._take(there, index, bounds)

    async def compare(self, before: str, after: str, *, limit: int) -> tuple[bytes, bytes]:
        """Git's `--raw --numstat -z` and its patch (at most `limit` bytes) of two trees or commits."""
        there = await self._look()
        diff = ("diff", *_PLAIN, "--find-renames")
        listing = await self._git(there, None, *diff, "--raw", "--numstat", "-z", before, after, "--")
        patch = await self._git(there, None, *diff, "--patch", before, after, "--", limit=limit) if listing else b""
        return listing, patch

    async def write_patch(self, before: str, after: str, target: Path) -> None:
        """A patch that makes the one tree of the other exactly, binary files included; empty when they are equal."""
        there = await self._look()
        # only exact renames: finding others costs time, and saves a few lines
        whole = ("--binary", "--full-index", "--find-renames=100%", f"--output={target}")
        await self._git(there, None, "diff", *_PLAIN, *whole, before, after, "--")

    async def prune(self) -> None:
        """Throw the snapshots away if they have become many. Not between the two of a turn."""
        if not self._own.exists():
            return
        there = await self._look()
        counted = (await self._git(there, None, "count-objects", "-v")).decode().splitlines()
        counts = {key: int(value) for key, _, value in (line.partition(": ") for line in counted) if value.isdigit()}
        size = counts.get("size", 0) + counts.get("size-pack", 0)
        many = counts.get("count", 0) > work_limits.OBJECTS_COUNT or counts.get("packs", 0) > work_limits.OBJECTS_PACKS
        if size > work_limits.OBJECTS_KIB or many:
            await asyncio.to_thread(shutil.rmtree, self._own, ignore_errors=True)
            self._kept = frozenset()

    async def _take(self, there: _Workspace, index: Path, bounds: Bounds) -> Snapshot:
        listing = await self._git(there, index, "diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
        changed, gone = snapshot_files.changed(listing)
        exclude = [f"--exclude-from={there.exclude}"] if there.exclude.exists() else []
        others = snapshot_files.split(
            await self._git(there, index, "ls-files", "--others", "-z", "--exclude-standard", *exclude)
        )
        seen = await asyncio.to_thread(self._measure, changed, others)
        chosen = snapshot_files.choose(seen, bounds)
        if gone:
            await self._update(there, index, ["--force-remove"], gone)
        # a conflict left out would keep git from writing the tree
        conflicts = {path for path in await self._unmerged(there, index) if path not in set(chosen.kept)}
        if conflicts:
            await self._update(there, index, ["--force-remove"], sorted(conflicts))
        if chosen.kept:
            # many new files go into one pack: that is four times as fast as a file for each (measured), but not
            # faster when they are there already
            new = sum(path not in self._kept for path in chosen.kept)
            many = ["-c", "core.bigFileThreshold=1"] if new > work_limits.PACKED_FROM else []
            await self._update(there, index, ["--add", "--remove", "--replace"], chosen.kept, options=many)
        self._kept = frozenset(chosen.kept)
        tree = await self._git(there, index, "write-tree", "--missing-ok")
        return Snapshot(tree=tree.decode().strip(), left_out=chosen.left_out)

    async def _unmerged(self, there: _Workspace, index: Path) -> list[bytes]:
        listing = snapshot_files.split(await self._git(there, index, "ls-files", "--unmerged", "-z"))
        return [line.partition(b"\t")[2] for line in listing]

    async def _update(
        self,
        there: _Workspace,
        index: Path,
        how: Sequence[str],
        paths: Sequence[bytes],
        *,
        options: Sequence[str] = (),
    ) -> None:
        with tempfile.TemporaryFile() as names:
            names.write(b"\0".join(paths) + b"\0")
            names.seek(0)
            await self._git(there, index, *options, "update-index", *how, "-z", "--stdin", stdin=names.fileno())

    def _measure(self, changed: Sequence[bytes], others: Sequence[bytes]) -> list[Seen]:
        root = os.fsencode(self._folder)
        return [
            Seen(path=path, tracked=tracked, size=_size(os.path.join(root, path)))
            for paths, tracked in ((changed, True), (others, False))
            for path in paths
        ]

    async def _look(self) -> _Workspace:
        """Find the workspace's repository, and make the runner's own ready to borrow from it."""
        if not self.possible:
            raise GitFailed("the workspace has no repository")
        paths = [argument for name in ("index", "objects", "info/exclude") for argument in ("--git-path", name)]
        found = (await self._in_workspace("rev-parse", *paths, "--show-object-format")).decode().splitlines()
        if len(found) != 4:
            raise GitFailed("the workspace's repository lies at a path with line breaks")
        index, objects, exclude = (Path(self._folder, path) for path in found[:3])
        settings = await self._in_workspace("config", "-z", "--get-regexp", _SETTINGS, fine=(0, 1))
        there = _Workspace(index=index, objects=objects, exclude=exclude, format=found[3], settings=_options(settings))
        await self._make_ready(there)
        return there

    async def _make_ready(self, there: _Workspace) -> None:
        own = self._own
        if not (own / "objects").is_dir() or not (own / "HEAD").is_file():
            shutil.rmtree(own, ignore_errors=True)
            own.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix="snapshots-", dir=own.parent))
            await self._run(
                "init", "--quiet", "--bare", "--template=", f"--object-format={there.format}", str(fresh), env=self._env
            )
            os.rename(fresh, own)
        lent = own / "objects" / "info" / "alternates"
        content = f"{there.objects}\n"
        if not lent.exists() or lent.read_text() != content:
            lent.parent.mkdir(exist_ok=True)
            lent.write_text(content)

    async def _git(
        self,
        there: _Workspace,
        index: Path | None,
        *arguments: str,
        limit: int | None = None,
        stdin: int = asyncio.subprocess.DEVNULL,
    ) -> bytes:
        """Git in the runner's own repository, on the workspace's files."""
        env = {
            **self._env,
            "GIT_DIR": str(self._own),
            "GIT_WORK_TREE": self._folder,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_LITERAL_PATHSPECS": "1",
        }
        if index:
            env["GIT_INDEX_FILE"] = str(index)
        options = ("-c", "core.compression=1", "-c", "core.safecrlf=false", *there.settings)
        return await self._run(*options, *arguments, env=env, limit=limit, stdin=stdin)

    async def _in_workspace(self, *arguments: str, fine: tuple[int, ...] = (0,)) -> bytes:
        return await self._run(*workspace_git.SAFE, *arguments, env=self._env, fine=fine)

    async def _run(
        self,
        *arguments: str,
        env: Mapping[str, str],
        fine: tuple[int, ...] = (0,),
        limit: int | None = None,
        stdin: int = asyncio.subprocess.DEVNULL,
    ) -> bytes:
        try:
            done = await processes.run(
                "git",
                *arguments,
                env=env,
                cwd=self._folder,
                timeout=work_limits.RESTORE_GIT_TIMEOUT,
                limit=limit,
                stdin=stdin,
            )
        except (OSError, TimeoutError) as error:
            raise GitFailed(f"git: {str(error) or type(error).__name__}") from error
        if done.code not in fine and not (limit is not None and len(done.stdout) >= limit):
            words = workspace_git.git_words(done.stderr.decode(errors="replace"))
            raise GitFailed(words or f"git {arguments[0]} ended with status {done.code}")
        return done.stdout


def _options(settings: bytes) -> list[str]:
    """Of `git config -z --get-regexp`: the same settings as options."""
    options: list[str] = []
    for entry in snapshot_files.split(settings):
        key, _, value = entry.decode(errors="replace").partition("\n")
        options += ["-c", f"{key}={value}"]
    return options


def _size(path: bytes) -> int | None:
    """Of a file or a link; of one that has just vanished 0, which git finds out as well."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    if stat.S_ISLNK(found.st_mode):
        return found.st_size
    return found.st_size if stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK) else None
