"""How git is run in a workspace, and what of its words is for people. Pure."""

import re

SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
"""Options with which git runs nothing that the workspace's configuration names, where no filter is needed."""

_PROGRESS = re.compile(
    r"^(remote: )?(Enumerating|Counting|Compressing|Receiving|Resolving|Updating|Filtering|Cloning)\b"
    r"|^remote: Total|^warning: redirecting|^Checking connectivity"
)
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]*://)[^/@\s]+@")


def git_words(stderr: str) -> str:
    """What git said, without progress and without user names and passwords in URLs."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", stderr)]
    said = "\n".join(line for line in lines if line and not _PROGRESS.search(line))
    return _CREDENTIALS.sub(r"\1", said)
