"""What a session has changed: the workspace against its base commit, untracked files included.

Read through a copy of the index in which untracked files are marked as intended, so that neither the repository's
index nor its objects are touched. Filters, hooks and external diff programs that the workspace may configure are not
run.
"""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from valet_protocol.events.agent import FileChange, GitChanged
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import limits, processes, workspace
from valet_runner.errors import GitFailed

_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames")

_STATUS: dict[str, Literal["added", "modified", "deleted", "renamed"]] = {
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "added",
}


class _Raw(msgspec.Struct, frozen=True):
    status: str
    path: str


async def changes(spec: RunnerSpec, env: Mapping[str, str], base: str | None) -> GitChanged | None:
    """Everything that differs from `base`; none when nothing does, or there is no base.

    Raises `GitFailed`.
    """
    if base is None:
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="valet-index-") as folder:
            index = Path(folder) / "index"
            await _copy_index(spec, env, index)
            own = {**env, "GIT_INDEX_FILE": str(index), "GIT_OPTIONAL_LOCKS": "0"}
            await _git("add", "--all", "--intent-to-add", "--ignore-errors", "--", ".", spec=spec, env=own, fine=(0, 1))
            listing = await _git(*_DIFF, "--raw", "--numstat", "-z", base, "--", spec=spec, env=own)
            files = parse(listing)
            if not files:
                return None
            patch = await _git(*_DIFF, "--patch", base, "--", spec=spec, env=own, limit=limits.PATCH_BYTES)
        now = await workspace.where(spec, env)
    except (OSError, TimeoutError) as error:
        raise GitFailed(f"git: {error or type(error).__name__}") from error
    cut = len(patch) >= limits.PATCH_BYTES
    return GitChanged(
        base_commit=base,
        head_commit=now.head,
        branch=now.branch,
        files=files[: limits.PATCH_FILES],
        patch=(patch[: patch.rfind(b"\n") + 1] if cut else patch).decode(errors="replace"),
        truncated=cut or len(files) > limits.PATCH_FILES,
    )


def parse(listing: bytes) -> list[FileChange]:
    """Git's `--raw --numstat -z`: first a record per file with its kind of change, then one with its counts."""
    fields = listing.decode(errors="replace").split("\0")
    raw: list[_Raw] = []
    at = 0
    while at < len(fields) and fields[at].startswith(":"):
        kind = fields[at].rpartition(" ")[2]
        names = 2 if kind[0] in "RC" else 1
        raw.append(_Raw(kind[0], fields[at + names]))
        at += 1 + names
    counts: dict[str, tuple[int, int]] = {}
    while at < len(fields):
        found = re.fullmatch(r"(\d+|-)\t(\d+|-)\t(.*)", fields[at], re.DOTALL)
        if not found:
            at += 1
            continue
        path = found[3]
        if not path:  # a rename: the old name and the new one follow
            path = fields[at + 2]
            at += 2
        counts[path] = (_count(found[1]), _count(found[2]))
        at += 1
    return [
        FileChange(
            path=change.path,
            status=_STATUS.get(change.status, "modified"),
            additions=counts.get(change.path, (0, 0))[0],
            deletions=counts.get(change.path, (0, 0))[1],
        )
        for change in raw
    ]


async def _copy_index(spec: RunnerSpec, env: Mapping[str, str], target: Path) -> None:
    path = (await _git("rev-parse", "--git-path", "index", spec=spec, env=env)).decode().strip()
    source = Path(spec.workspace) / path
    if source.exists():
        shutil.copyfile(source, target)


async def _git(
    *arguments: str,
    spec: RunnerSpec,
    env: Mapping[str, str],
    fine: tuple[int, ...] = (0,),
    limit: int | None = None,
) -> bytes:
    done = await processes.run(
        "git", *_SAFE, *arguments, env=env, cwd=spec.workspace, timeout=limits.GIT_TIMEOUT, limit=limit
    )
    if done.code not in fine and not (limit is not None and len(done.stdout) >= limit):
        words = workspace.git_words(done.stderr.decode(errors="replace"))
        raise GitFailed(words or f"git {arguments[0]} ended with status {done.code}")
    return done.stdout


def _count(text: str) -> int:
    """Lines; a binary file has none."""
    return 0 if text == "-" else int(text)
