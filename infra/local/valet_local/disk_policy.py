"""What is said and done about the disk: a pure function of what was seen of it and of the log upon it."""

from typing import Literal

import msgspec
from valet_service.broker_health import cannot_write

from valet_local import limits

Room = Literal["enough", "low", "short", "full"]

_BELOW: tuple[tuple[Room, int], ...] = (
    ("full", limits.FULL_DISK_MB),
    ("short", limits.FREE_DISK_MB),
    ("low", limits.LOW_DISK_MB),
)

_REMEDY = "Free some space there, or end sessions that nobody needs: their workspaces go with them"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One look."""

    free_mb: int
    complaint: str | None
    """What the broker says it cannot do: empty when all is well, None when it did not answer."""
    now: float
    """Seconds of a clock that never goes back."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered from one look to the next."""

    room: Room = "enough"
    stuck: bool = False
    """Whether the broker cannot write the log."""
    starts: int = 0
    """How often it was started again since it last could."""
    not_before: float = 0.0
    """When it may be started again."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    say: tuple[str, ...] = ()
    """For the person at the terminal, and the log."""
    restart: str = ""
    """Why the broker is to be started again; empty when it is not."""


def after_look(before: Known, seen: Seen, place: str) -> tuple[Known, Measures]:
    """What to remember and what to do. `place` is the data directory, for the words."""
    room = _room(before.room, seen.free_mb)
    say = [_words(room, seen.free_mb, place)] if room != before.room else []
    known = msgspec.structs.replace(before, room=room)
    if seen.complaint is None:
        return known, Measures(say=tuple(say))
    if not cannot_write(seen.complaint):
        if before.stuck:
            say.append("The log can be written again")
        if seen.now >= before.not_before:
            known = msgspec.structs.replace(known, starts=0)
        return msgspec.structs.replace(known, stuck=False), Measures(say=tuple(say))
    if not before.stuck:
        then = "when there is room" if seen.free_mb < limits.FULL_DISK_MB else "now"
        say.append(f"warning: NATS cannot write the log and is started again {then}: {seen.complaint}")
    known = msgspec.structs.replace(known, stuck=True)
    if seen.free_mb < limits.FULL_DISK_MB or seen.now < before.not_before:
        return known, Measures(say=tuple(say))
    wait = min(limits.UNSTICK_FIRST * 2.0 ** min(before.starts, 16), limits.UNSTICK_LONGEST)
    known = msgspec.structs.replace(known, starts=before.starts + 1, not_before=seen.now + wait)
    return known, Measures(say=tuple(say), restart=f"it could not write the log, and {seen.free_mb} MB are free")


def _room(before: Room, free_mb: int) -> Room:
    """The first threshold that is not met; one that was not met before must be met by a margin."""
    worse = [name for name, _ in _BELOW]
    for name, threshold in _BELOW:
        missed = before in worse[: worse.index(name) + 1]
        if free_mb < threshold * (limits.ROOM_AGAIN if missed else 1):
            return name
    return "enough"


def _words(room: Room, free_mb: int, place: str) -> str:
    if room == "enough":
        return f"There is room again: {free_mb} MB are free at {place}"
    if room == "low":
        return (
            f"warning: only {free_mb} MB are free at {place}; below {limits.FREE_DISK_MB} MB new sessions and files "
            f"are refused. {_REMEDY}"
        )
    if room == "short":
        return f"warning: only {free_mb} MB are free at {place}: new sessions and files are refused. {_REMEDY}"
    return (
        f"warning: the disk of {place} is full ({free_mb} MB free): nothing can be stored, not even that a session is "
        "ended. Free some space there (below it cache/ and tools/ may be deleted, and what a workspace in sandboxes/ "
        "does not need); everything then goes on by itself"
    )
