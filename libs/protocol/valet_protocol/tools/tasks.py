"""The task board: what is to be done, by which session, and how far it is. Answered by automation.

A board belongs to a person; all of that person's sessions see it.
"""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool

TaskStatus = Literal["open", "in_progress", "blocked", "done", "cancelled"]
TaskPriority = Literal["low", "normal", "high", "urgent"]


class TaskView(Reply, frozen=True, kw_only=True):
    """A task of the board."""

    id: str
    title: str
    description: str = ""
    status: TaskStatus
    priority: TaskPriority
    assigned_session: str | None = None
    """The session that is to do it; none while nobody is."""
    parent_task: str | None = None
    """The task it is a part of."""
    blocked_by: list[str] = []
    """Tasks that must be done before."""
    result: str = ""
    """What came of it."""
    created_by: str
    """`session:<id>`, or a person's user id."""
    created_at: str
    """RFC 3339."""
    updated_at: str
    """RFC 3339."""


class TaskPage(Reply, frozen=True, kw_only=True):
    """Tasks, the most urgent first and of those the oldest."""

    items: list[TaskView]
    next: str | None = None
    """Pass as `after` for the next page; none at the end."""


class CreateTask(Tool, frozen=True, kw_only=True):
    """Put a task on the board, for this session, another one or nobody yet.

    Use it to split a large piece of work, and to note what must not be forgotten. To have it done at once, spawn a
    child and assign the task to it.
    """

    name = method = "create_task"
    category = "tasks"
    route = "POST /api/tasks"
    reply = TaskView
    timeout = WRITE

    title: limits.Name
    """What is to be done, in one line."""
    description: limits.Fact | None = None
    """What whoever does it needs to know."""
    priority: TaskPriority = "normal"
    """How soon, compared with the others."""
    assigned_session: limits.Id | None = None
    """The session that is to do it; none for nobody yet."""
    parent_task: limits.Id | None = None
    """The task it is a part of."""
    blocked_by: list[limits.Id] = []
    """Tasks that must be done before."""


class ListTasks(Tool, frozen=True, kw_only=True):
    """List the tasks of the board."""

    name = method = "list_tasks"
    category = "tasks"
    route = "GET /api/tasks"
    reply = TaskPage

    status: TaskStatus | None = None
    """Only those; none for all that are neither done nor cancelled."""
    assigned_session: limits.Id | None = None
    """Only those assigned to this session."""
    parent_task: limits.Id | None = None
    """Only the parts of this task."""
    limit: limits.Page = 50
    """How many at most."""
    after: limits.Id | None = None
    """`next` of the page before."""


class GetTask(Tool, frozen=True, kw_only=True):
    """Read one task of the board."""

    name = method = "get_task"
    category = "tasks"
    route = "GET /api/tasks/{task_id}"
    reply = TaskView

    task_id: limits.Id
    """The task's id."""


class UpdateTask(Tool, frozen=True, kw_only=True):
    """Change a task: take it, report how far it is, finish it. What is not given stays as it is.

    Keep the status true: `in_progress` when you begin, `blocked` with the reason in `result` when you cannot go on,
    `done` with what came of it.
    """

    name = method = "update_task"
    category = "tasks"
    route = "PUT /api/tasks/{task_id}"
    reply = TaskView
    timeout = WRITE

    task_id: limits.Id
    """The task's id."""
    status: TaskStatus | None = None
    """How far it is."""
    result: limits.Fact | None = None
    """What came of it, or why it does not go on."""
    title: limits.Name | None = None
    """What is to be done, in one line."""
    description: limits.Fact | None = None
    """What whoever does it needs to know."""
    priority: TaskPriority | None = None
    """How soon, compared with the others."""
    assigned_session: limits.Id | None = None
    """The session that is to do it."""
    blocked_by: list[limits.Id] | None = None
    """Tasks that must be done before; an empty list for none any more."""


class MyTasks(Tool, frozen=True, kw_only=True):
    """List the tasks that are assigned to this session."""

    name = method = "my_tasks"
    category = "tasks"
    route = "GET /api/my-tasks"
    reply = TaskPage

    status: TaskStatus | None = None
    """Only those; none for all that are neither done nor cancelled."""
    limit: limits.Page = 50
    """How many at most."""
    after: limits.Id | None = None
    """`next` of the page before."""
