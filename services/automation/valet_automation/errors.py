"""What automation refuses.

Refused (valet_protocol.errors)
├── TaskNotFound        404  no task of this person's board has that id
├── SessionNotFound     404  a task is for a session that is not there, or somebody else's
├── NotACursor          400  `after` did not come from a page
├── NothingToChange     400  an update that names no change
├── TaskWaits           409  it cannot begin or be done before others are
├── BlockersInACircle   422  each would wait for the other
├── TooManyBlockers     422  it waits for more than anybody keeps track of
├── TooManyTasks        429  the board is full
└── AutomationAway      503  the database does not answer
"""

from collections.abc import Sequence

from valet_protocol.errors import BadRequest, Conflict, NotFound, TooMany, Unavailable, Unprocessable


class TaskNotFound(NotFound):
    """Also for tasks of other people: who asks is not told that they are there."""

    def __init__(self, task_id: str) -> None:
        super().__init__("task_not_found", f"There is no task {task_id!r} on this board; see list_tasks.")


class SessionNotFound(NotFound):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            "session_not_found", f"There is no session {session_id!r} of the same person to assign the task to."
        )


class NotACursor(BadRequest):
    def __init__(self) -> None:
        super().__init__("bad_cursor", "Pass `next` of the page before as `after`, unchanged, or leave it out.")


class NothingToChange(BadRequest):
    def __init__(self) -> None:
        super().__init__("nothing_to_change", "Name what is to change: `status`, `result`, `title` or another field.")


class TaskWaits(Conflict):
    def __init__(self, blockers: Sequence[str]) -> None:
        super().__init__(
            "task_waits",
            f"These tasks must be done or cancelled before: {', '.join(blockers)}. If it need not wait for them, take"
            " them out of `blocked_by`.",
        )


class BlockersInACircle(Unprocessable):
    def __init__(self, circle: Sequence[str]) -> None:
        super().__init__(
            "blockers_in_a_circle", f"Each would wait for the next and the last for the first: {' → '.join(circle)}."
        )


class TooManyBlockers(Unprocessable):
    def __init__(self, most: int) -> None:
        super().__init__(
            "too_many_blockers", f"A task waits for at most {most} others; make one of which they are parts."
        )


class TooManyTasks(TooMany):
    def __init__(self, most: int) -> None:
        super().__init__(
            "too_many_tasks",
            f"The board has {most} tasks that are neither done nor cancelled; finish or cancel some (update_task).",
        )


class AutomationAway(Unavailable):
    def __init__(self) -> None:
        super().__init__("tasks_unavailable", "The task board cannot be reached at the moment; try again.")
