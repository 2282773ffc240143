"""What may be done with the tasks of a board. Pure.

A board belongs to a person, not to a session or a tree of sessions: an agent that directs others gives tasks to its
children on it and reads there how far they are; and it goes on there when it is itself followed by another session.
"""

from collections.abc import Mapping, Sequence

import msgspec
from valet_protocol.tools.tasks import TaskPriority, TaskStatus, UpdateTask

from valet_automation import limits
from valet_automation.errors import BlockersInACircle, NothingToChange, TaskWaits, TooManyBlockers, TooManyTasks

FINISHED: frozenset[TaskStatus] = frozenset({"done", "cancelled"})
"""Nothing more is to be done, and nobody waits for it."""

NEED_ALL: frozenset[TaskStatus] = frozenset({"in_progress", "done"})
"""What a task becomes only when those it waits for are finished."""

PRIORITIES: tuple[TaskPriority, ...] = ("low", "normal", "high", "urgent")
"""The least urgent first, so that a place in it is a measure."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it is stored."""

    id: str
    title: str
    description: str = ""
    status: TaskStatus = "open"
    priority: TaskPriority = "normal"
    assigned_session: str | None = None
    parent_task: str | None = None
    blocked_by: list[str] = []
    result: str = ""


def changed(task: Task, wanted: UpdateTask) -> Task:
    """A task after an update. Raises `NothingToChange`."""
    fields = ("status", "result", "title", "description", "priority", "assigned_session", "blocked_by")
    changes = {name: getattr(wanted, name) for name in fields if getattr(wanted, name) is not None}
    if not changes:
        raise NothingToChange
    if wanted.blocked_by is not None:
        changes["blocked_by"] = list(dict.fromkeys(wanted.blocked_by))
    return msgspec.structs.replace(task, **changes)


def check(before: Task | None, after: Task, unfinished: Mapping[str, Sequence[str]]) -> None:
    """Whether a task, new or changed, may stand on the board. `unfinished` are the board's unfinished tasks and what
    each of them waits for; what is not among them holds nobody up. Raises `TooManyTasks`, `TooManyBlockers`,
    `BlockersInACircle` and `TaskWaits`.
    """
    more = after.status not in FINISHED and (before is None or before.status in FINISHED)
    if more and len(unfinished) >= limits.UNFINISHED_TASKS:
        raise TooManyTasks(limits.UNFINISHED_TASKS)
    if len(after.blocked_by) > limits.BLOCKERS:
        raise TooManyBlockers(limits.BLOCKERS)
    if circle := _circle(after.id, after.blocked_by, unfinished):
        raise BlockersInACircle(circle)
    if after.status in NEED_ALL and (before is None or before.status != after.status):
        waits = [blocker for blocker in after.blocked_by if blocker in unfinished]
        if waits:
            raise TaskWaits(waits)


def _circle(task_id: str, blocked_by: Sequence[str], unfinished: Mapping[str, Sequence[str]]) -> list[str]:
    """The way from a task over what it waits for back to itself; empty where there is none."""
    ways = [[blocker] for blocker in blocked_by]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == task_id:
            return [task_id, *way]
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [[*way, blocker] for blocker in unfinished.get(way[-1], ())]
    return []
