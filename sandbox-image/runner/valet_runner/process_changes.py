"""What has happened to the sandbox's processes, told from what was known of them. Pure.

The process service's events may come again after a cut, and where some of them are not kept, or the service is another
one, it sends a list of all processes instead. Whatever is known already is no news.
"""

from collections.abc import Iterable, Mapping

import msgspec
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import (
    ProcessCreated,
    ProcessDeleted,
    ProcessExited,
    ProcessInfo,
    ProcessUpdated,
)

Known = Mapping[str, ProcessInfo]
"""Processes by id, as last told."""


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ProcessInfo]


class _Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str


def happened(known: Known, kind: str, data: bytes) -> tuple[Known, list[Data]]:
    """One event of the process service, by its name and its JSON; an unknown name is nothing. Raises
    `msgspec.MsgspecError`."""
    match kind:
        case "process.created" | "process.updated" | "process.exited":
            return _seen(known, msgspec.json.decode(data, type=ProcessInfo))
        case "process.deleted":
            return _gone(known, msgspec.json.decode(data, type=_Deleted).id)
        case "snapshot":
            return _listed(known, msgspec.json.decode(data, type=_Snapshot).items)
        case _:
            return known, []


def _listed(known: Known, processes: Iterable[ProcessInfo]) -> tuple[Known, list[Data]]:
    """These are all the processes there are."""
    said: list[Data] = []
    listed = {process.id: process for process in processes}
    for gone in [id for id in known if id not in listed]:
        known, news = _gone(known, gone)
        said += news
    for process in listed.values():
        known, news = _seen(known, process)
        said += news
    return known, said


def _seen(known: Known, process: ProcessInfo) -> tuple[Known, list[Data]]:
    before = known.get(process.id)
    said: list[Data] = []
    if before is None:
        said.append(ProcessCreated(process=msgspec.structs.replace(process, status="running", **_NOT_EXITED)))
    elif before.status == "exited" and process.status == "running":
        return known, []  # told late, of a time before its end
    elif _looks(before) != _looks(process):
        said.append(ProcessUpdated(process=process))
    if process.status == "exited" and (before is None or before.status == "running"):
        said.append(ProcessExited(process=process))
    return {**known, process.id: process}, said


def _gone(known: Known, id: str) -> tuple[Known, list[Data]]:
    if id not in known:
        return known, []
    left = {key: process for key, process in known.items() if key != id}
    said: list[Data] = [ProcessDeleted(process_id=id)]
    if known[id].status == "running":
        said.insert(0, ProcessExited(process=msgspec.structs.replace(known[id], status="exited")))
    return left, said


_NOT_EXITED = {"exit_code": None, "signal": None, "exited_at": None}


def _looks(process: ProcessInfo) -> tuple[str, int | None, int | None]:
    return process.label, process.rows, process.cols
