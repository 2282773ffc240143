"""Executions: one run of a workflow each. Answered by automation."""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool

ExecutionStatus = Literal["pending", "running", "waiting_approval", "completed", "failed", "cancelled"]


class ExecutionStep(Reply, frozen=True, kw_only=True):
    """One step of an execution."""

    id: str
    """As the workflow's definition names it."""
    status: Literal["pending", "running", "waiting_approval", "completed", "failed", "skipped"]
    output: dict[str, object] = {}
    error: str | None = None
    """Why it failed."""
    session: str | None = None
    """The session whose agent did it."""
    started_at: str | None = None
    """RFC 3339."""
    ended_at: str | None = None
    """RFC 3339."""


class ExecutionView(Reply, frozen=True, kw_only=True):
    """A run of a workflow."""

    id: str
    workflow_id: str
    version: int
    """Of the workflow."""
    status: ExecutionStatus
    trigger_id: str | None = None
    """What started it; none for somebody's request."""
    variables: dict[str, object] = {}
    outputs: dict[str, object] = {}
    steps: list[ExecutionStep] = []
    """Left out in lists."""
    waits_for: str | None = None
    """What is to be approved: the question for people."""
    error: str | None = None
    """Why it failed."""
    started_at: str
    """RFC 3339."""
    ended_at: str | None = None
    """RFC 3339."""


class ExecutionPage(Reply, frozen=True, kw_only=True):
    """Executions, the newest first."""

    items: list[ExecutionView]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class ListExecutions(Tool, frozen=True, kw_only=True):
    """List executions, of all workflows or of one."""

    name = method = "list_executions"
    category = "executions"
    route = "GET /api/executions"
    reply = ExecutionPage

    workflow_id: limits.Id | None = None
    """Only those of this workflow, by id or slug."""
    status: ExecutionStatus | None = None
    """Only those; none for all."""
    limit: limits.Page = 20
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class GetExecution(Tool, frozen=True, kw_only=True):
    """See how far an execution is, step by step, and what came of it."""

    name = method = "get_execution"
    category = "executions"
    route = "GET /api/executions/{execution_id}"
    reply = ExecutionView

    execution_id: limits.Id
    """The execution's id."""


class CompleteExecution(Tool, frozen=True, kw_only=True):
    """Report what came of an execution, or of one of its steps, that this session was started for."""

    name = method = "complete_execution"
    category = "executions"
    route = "POST /api/executions/{execution_id}/complete"
    reply = ExecutionView
    timeout = WRITE

    execution_id: limits.Id
    """The execution's id, as the prompt gave it."""
    step_id: limits.Id | None = None
    """The step, where the prompt named one; none for the whole."""
    status: Literal["completed", "failed"]
    """Whether it was done."""
    outputs: dict[str, object] = {}
    """What the workflow asked for, by name."""
    error: limits.Note | None = None
    """Why it failed."""


class ApproveExecution(Tool, frozen=True, kw_only=True):
    """Answer an execution that waits for approval, when the person you work for told you what to answer."""

    name = method = "approve_execution"
    category = "executions"
    route = "POST /api/executions/{execution_id}/approve"
    reply = ExecutionView
    timeout = WRITE

    execution_id: limits.Id
    """The execution's id."""
    approve: bool
    """False ends it there."""
    reason: limits.Note | None = None
    """Why, for people."""


class CancelExecution(Tool, frozen=True, kw_only=True):
    """Stop an execution. Steps that are done stay done. One that has ended is given back as it is."""

    name = method = "cancel_execution"
    category = "executions"
    route = "POST /api/executions/{execution_id}/cancel"
    reply = ExecutionView
    timeout = WRITE

    execution_id: limits.Id
    """The execution's id."""
    reason: limits.Note | None = None
    """Why, for people."""
