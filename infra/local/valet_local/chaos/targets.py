"""Finding the processes that are to suffer."""

import msgspec
import psutil

from valet_local.identity import Identity, identify
from valet_local.layout import Layout
from valet_local.leftovers import Recorded, RecordedSandbox

_WORDS = {
    "runner": "valet_runner",
    "opencode": "opencode",
    "gateway": "valet_gateway",
    "processes": "valet_processes",
}
"""By what the command line of a sandbox's process is known."""


def processes(places: Layout, target: str, session_id: str) -> list[Identity]:
    """The processes that are the target now, its root first; empty when it does not run at this moment.

    A server or service is one process, but PostgreSQL, which is stopped with all its backends. `session_id` says whose
    runner, agent, gateway or process service is meant.
    """
    if target in _WORDS:
        return _in_sandbox(places, session_id, _WORDS[target])
    root = _supervised(places, target)
    if root is None:
        return []
    return [root, *_children(root)] if target == "postgres" else [root]


def _supervised(places: Layout, name: str) -> Identity | None:
    try:
        recorded = msgspec.json.decode(places.processes.read_bytes(), type=list[Recorded])
    except (OSError, msgspec.DecodeError):
        return None
    for process in recorded:
        if process.name == name:
            found = Identity(pid=process.pid, start_time=process.start_time)
            return found if identify(process.pid) == found else None
    return None


def _in_sandbox(places: Layout, session_id: str, word: str) -> list[Identity]:
    """The oldest process of a sandbox whose command line has the word: a runner's first process, an agent's server."""
    try:
        recorded = msgspec.json.decode((places.sandboxes / f"{session_id}.json").read_bytes(), type=RecordedSandbox)
        root = psutil.Process(recorded.pid)
        family = [root, *root.children(recursive=True)]
    except (OSError, msgspec.DecodeError, psutil.Error):
        return []
    found: list[psutil.Process] = []
    for process in family:
        try:
            words = process.cmdline()[:4]
            if process.name() != "bwrap" and any(word in part for part in words):
                found.append(process)
        except psutil.Error:
            continue  # it has ended meanwhile
    oldest = min(found, key=lambda process: process.create_time(), default=None)
    chosen = identify(oldest.pid) if oldest is not None else None
    return [chosen] if chosen is not None else []


def _children(root: Identity) -> list[Identity]:
    try:
        children = psutil.Process(root.pid).children(recursive=True)
    except psutil.Error:
        return []
    return [child for child in map(identify, (process.pid for process in children)) if child is not None]
