"""Which files of the workspace a snapshot takes in. Pure.

Paths are bytes, relative to the workspace, as git gives them.
"""

from collections.abc import Iterable

import msgspec

from valet_runner.work_limits import Bounds


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not as the index has it."""

    path: bytes
    tracked: bool
    size: int | None
    """None for what cannot be taken in whatever its size: unreadable, or neither a file nor a link."""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The choice."""

    kept: list[bytes]
    left_out: list[Seen]


def choose(seen: Iterable[Seen], bounds: Bounds) -> Chosen:
    """Take in what fits: tracked files first, then what lies highest, then what is smallest."""
    kept: list[bytes] = []
    left_out: list[Seen] = []
    total = 0
    for file in sorted(seen, key=_rank):
        fits = file.size is not None and file.size <= bounds.file_bytes
        if fits and file.size is not None and total + file.size <= bounds.total_bytes and len(kept) < bounds.files:
            kept.append(file.path)
            total += file.size
        else:
            left_out.append(file)
    return Chosen(kept=kept, left_out=left_out)


def split(listing: bytes) -> list[bytes]:
    """What git separates by NUL."""
    return [field for field in listing.split(b"\0") if field]


def changed(listing: bytes) -> tuple[list[bytes], list[bytes]]:
    """Of `git diff-files --raw -z`: files whose content is to be looked at, and files that are gone."""
    looked: dict[bytes, None] = {}
    gone: dict[bytes, None] = {}
    fields = split(listing)
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        status = head.rpartition(b" ")[2]
        if status == b"U":  # a conflict: what lies in the workspace counts
            looked[path] = None
        elif status == b"D":
            gone[path] = None
        else:
            looked[path] = None
    return [path for path in looked if path not in gone], list(gone)


def name(path: bytes) -> str:
    """A path for people."""
    return path.decode(errors="replace")


def _rank(file: Seen) -> tuple[bool, int, int, bytes]:
    return (not file.tracked, file.path.count(b"/"), file.size or 0, file.path)
