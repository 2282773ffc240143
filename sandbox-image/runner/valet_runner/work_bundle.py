"""The form of saved work: one `tar.gz` with these members.

manifest.json            what it is, see `Manifest`
work.patch               from the base commit to the workspace as it was; empty when nothing differs
commits.bundle           commits that the base commit does not have, if there are any
conversations/<n>.json   OpenCode's export of a channel's conversation
"""

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from valet_runner import work_limits
from valet_runner.work_errors import BadWork, WorkTooLarge

VERSION = 1

MANIFEST = "manifest.json"
PATCH = "work.patch"
COMMITS = "commits.bundle"


class SavedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One channel's conversation."""

    channel: str
    session: str
    """OpenCode's id of it."""
    file: str
    """Member of the archive."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece of saved work holds."""

    version: int = VERSION
    session: str
    """The session that saved it; a fork has another id."""
    turn: str
    base_commit: str | None = None
    """What `work.patch` applies to; none where there was no repository."""
    tree: str | None = None
    """Git's id of the whole workspace, to compare with what the patch gives."""
    head_commit: str | None = None
    branch: str | None = None
    """None when no branch was checked out."""
    refs: dict[str, str] = {}
    """Commits of local branches by full name, and of the newest stash (`refs/stash`)."""
    left_out: list[str] = []
    """Files that did not fit."""
    channels: list[SavedConversation] = []
    preambles: dict[str, list[str]] = {}
    """By channel what the agent is told ahead of a prompt, unless its conversation holds it."""
    said: dict[str, str] = {}
    """By channel what was said before, where only the text of a conversation is there: one that came from elsewhere."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work, ready to be stored."""

    bytes: int
    sha256: str


def pack(manifest: Manifest, members: Mapping[str, Path], target: Path) -> Packed:
    """Write the archive. Raises `WorkTooLarge`, `OSError`."""
    raw = sum(path.stat().st_size for path in members.values())
    if raw > work_limits.WORK_RAW_BYTES:
        raise WorkTooLarge(f"{raw} bytes before packing, at most {work_limits.WORK_RAW_BYTES}")
    with tarfile.open(target, "w:gz", compresslevel=work_limits.COMPRESS_LEVEL) as archive:
        content = target.with_suffix(".manifest")
        content.write_bytes(msgspec.json.encode(manifest))
        # the manifest first: who reads it need not read the rest
        for name, path in {MANIFEST: content, **members}.items():
            info = tarfile.TarInfo(name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)
    size = target.stat().st_size
    if size > work_limits.WORK_BYTES:
        raise WorkTooLarge(f"{size} bytes, at most {work_limits.WORK_BYTES}")
    with target.open("rb") as file:
        return Packed(bytes=size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def unpack(source: Path, folder: Path) -> Manifest:
    """Write the members to an empty folder, those of known names only. Raises `BadWork`, `OSError`."""
    total = 0
    manifest: Manifest | None = None
    try:
        with tarfile.open(source, "r:gz") as archive:
            for member in archive:
                total += member.size
                if total > work_limits.WORK_RAW_BYTES:
                    raise BadWork(f"unpacked it is larger than {work_limits.WORK_RAW_BYTES} bytes")
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if manifest is None:
                    if member.name != MANIFEST:
                        raise BadWork("its first member is not the manifest")
                    manifest = msgspec.json.decode(content.read(), type=Manifest)
                    if manifest.version != VERSION:
                        raise BadWork(f"its version is {manifest.version}; this runner reads {VERSION}")
                elif member.name in _known(manifest):
                    target = folder / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as file:
                        while piece := content.read(1 << 20):
                            file.write(piece)
    except (tarfile.TarError, EOFError, OSError, msgspec.MsgspecError) as error:
        raise BadWork(f"it cannot be read: {error}") from error
    if manifest is None:
        raise BadWork("it is empty")
    return manifest


def conversation_file(number: int) -> str:
    """Name of a conversation's member."""
    return f"conversations/{number}.json"


def _known(manifest: Manifest) -> set[str]:
    numbered = {conversation_file(number) for number in range(len(manifest.channels))}
    return {PATCH, COMMITS} | {saved.file for saved in manifest.channels if saved.file in numbered}
