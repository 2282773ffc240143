"""Which processes there may be, which one is meant, and whose record or output goes. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from valet_protocol.errors import Conflict, NotFound, TooMany
from valet_protocol.events.machine import ProcessInfo

from valet_processes import answers, limits
from valet_processes.answers import Asked
from valet_processes.requests import Create


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What deciding about a record takes."""

    info: ProcessInfo
    exited_ms: int | None = None
    """Milliseconds since 1970; none while it runs."""
    output_cost: int = 0
    """Bytes of memory its output takes."""
    asked: Asked | None = None
    """The request it was started by, where that had a key."""


def admit(records: Iterable[Kept], request: Create) -> None:
    """Whether one more may be started. Raises `Conflict`, `TooMany`."""
    running = [kept.info for kept in records if kept.exited_ms is None]
    for info in running:
        if request.tag is not None and info.tag == request.tag:
            raise Conflict(
                "tag_taken", f"{info.id} runs with the tag {request.tag}; use that one, delete it or choose another tag"
            )
    if len(running) >= limits.RUNNING_MAX:
        raise TooMany("too_many_processes", f"{len(running)} processes are running; delete one that is not needed")


def find(records: Mapping[str, Kept], key: str) -> str:
    """The id of the process with this id or tag; of several with one tag the running one, else the last to end.

    Raises `NotFound`.
    """
    if key in records:
        return key
    tagged = [kept for kept in records.values() if kept.info.tag == key]
    if not tagged:
        raise NotFound("process_not_found", f"No process has the id or tag {key!r}; it may have been deleted")
    return max(tagged, key=_recency).info.id


def started_by(records: Iterable[Kept], asked: Asked) -> str | None:
    """The id of the process that this request has started before. Raises `Unprocessable` where its key was
    another one's."""
    for kept in records:
        if kept.asked is not None and kept.asked.key == asked.key:
            answers.check_same(asked, kept.asked.digest)
            return kept.info.id
    return None


def forgettable(records: Iterable[Kept], now_ms: int) -> list[str]:
    """Ids of ended processes whose records are too old or too many."""
    exited = sorted((kept for kept in records if kept.exited_ms is not None), key=_recency, reverse=True)
    oldest = now_ms - int(limits.EXITED_AGE * 1000)
    return [
        kept.info.id
        for position, kept in enumerate(exited)
        if position >= limits.EXITED_KEPT or (kept.exited_ms or 0) < oldest
    ]


def give_up_output(records: Iterable[Kept], budget: int = limits.RINGS_BYTES) -> list[str]:
    """Ids of the ended processes, longest ended first, whose output in memory goes so that all fit the budget."""
    kept = list(records)
    excess = sum(each.output_cost for each in kept) - budget
    chosen: list[str] = []
    for each in sorted((each for each in kept if each.exited_ms is not None), key=_recency):
        if excess <= 0:
            break
        if each.output_cost:
            chosen.append(each.info.id)
            excess -= each.output_cost
    return chosen


def _recency(kept: Kept) -> tuple[bool, int, str]:
    return (kept.exited_ms is None, kept.exited_ms or 0, kept.info.id)
