"""Reading a patch as `git diff` writes it. Pure."""

import re
from typing import Literal

from valet_protocol.events.agent import FileChange

_HEAD = re.compile(r'^diff --git "?a/(.*?)"? "?b/(.*?)"?$')

Status = Literal["added", "modified", "deleted", "renamed"]


def files_of(patch: str) -> list[FileChange]:
    """The files a patch is about, with the lines it adds and removes."""
    files: list[FileChange] = []
    for section in re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE):
        lines = section.splitlines()
        found = _HEAD.match(lines[0]) if lines else None
        if not found:
            continue
        start = next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines))
        head, body = lines[1:start], lines[start:]
        files.append(
            FileChange(
                path=found[2],
                status=_status(head),
                additions=sum(line.startswith("+") for line in body),
                deletions=sum(line.startswith("-") for line in body),
            )
        )
    return files


def _status(head: list[str]) -> Status:
    """By the lines between a file's `diff` line and its first hunk."""
    if any(line.startswith("new file") for line in head):
        return "added"
    if any(line.startswith("deleted file") for line in head):
        return "deleted"
    if any(line.startswith("rename to") for line in head):
        return "renamed"
    return "modified"
