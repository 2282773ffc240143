"""What a session has changed: the workspace against its base commit, untracked files included."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from valet_protocol.events.agent import FileChange, GitChanged
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import limits, snapshot_files, workspace
from valet_runner.errors import GitFailed
from valet_runner.snapshot_files import Seen
from valet_runner.snapshots import Snapshot, Snapshots

_STATUS: dict[str, Literal["added", "modified", "deleted", "renamed"]] = {
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "added",
}


class _Raw(msgspec.Struct, frozen=True):
    status: str
    path: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs, cut to what an event takes."""

    files: list[FileChange]
    patch: str
    truncated: bool


async def changes(spec: RunnerSpec, env: Mapping[str, str], base: str | None) -> GitChanged | None:
    """Everything that differs from `base`; none when nothing does, or there is no base.

    Raises `GitFailed`.
    """
    if base is None:
        return None
    snapshots = Snapshots(spec, env)
    try:
        async with asyncio.timeout(limits.GIT_TIMEOUT):
            return await since(spec, env, base, snapshots, await snapshots.take())
    except TimeoutError as error:
        raise GitFailed(f"git took longer than {limits.GIT_TIMEOUT:.0f} s and was stopped") from error


async def since(
    spec: RunnerSpec, env: Mapping[str, str], base: str, snapshots: Snapshots, now: Snapshot
) -> GitChanged | None:
    """The same, of a snapshot that was taken already."""
    found = await difference(snapshots, base, now.tree, left_out=now.left_out)
    if found is None:
        return None
    try:
        stands = await workspace.where(spec, env)
    except (OSError, TimeoutError) as error:
        raise GitFailed(f"git: {str(error) or type(error).__name__}") from error
    return GitChanged(
        base_commit=base,
        head_commit=stands.head,
        branch=stands.branch,
        files=found.files,
        patch=found.patch,
        truncated=found.truncated,
    )


async def difference(
    snapshots: Snapshots, before: str, after: str, *, left_out: Iterable[Seen] = ()
) -> Difference | None:
    """Of two trees or commits; none when there is none. Files too large for a snapshot are listed without counts."""
    listing, patch = await snapshots.compare(before, after, limit=limits.PATCH_BYTES)
    files = parse(listing) + [
        FileChange(
            path=snapshot_files.name(seen.path),
            status="modified" if seen.tracked else "added",
            additions=0,
            deletions=0,
        )
        for seen in left_out
        if not seen.path.endswith(b"/")  # a repository of its own
    ]
    if not files:
        return None
    cut = len(patch) >= limits.PATCH_BYTES
    return Difference(
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


def _count(text: str) -> int:
    """Lines; a binary file has none."""
    return 0 if text == "-" else int(text)
