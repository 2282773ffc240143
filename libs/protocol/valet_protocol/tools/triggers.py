"""Triggers: what starts a workflow by itself. Answered by automation."""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool

TriggerKind = Literal["webhook", "schedule", "manual"]


class TriggerView(Reply, frozen=True, kw_only=True):
    """A trigger."""

    id: str
    workflow_id: str
    title: str
    kind: TriggerKind
    enabled: bool
    schedule: str | None = None
    """Cron expression of a schedule."""
    timezone: str = "UTC"
    """In which the schedule is meant."""
    url: str | None = None
    """Where a webhook's caller posts to."""
    variables: dict[str, object] = {}
    """What the workflow's variables get; `{{ body.… }}` takes from what a webhook's caller sent."""
    last_run_at: str | None = None
    """RFC 3339."""
    next_run_at: str | None = None
    """RFC 3339; of a schedule."""


class TriggerPage(Reply, frozen=True, kw_only=True):
    """Triggers, the newest first."""

    items: list[TriggerView]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class TriggerDeleted(Reply, frozen=True, kw_only=True):
    """The trigger is gone."""

    id: str
    deleted: bool
    """False where it was gone before."""


class ListTriggers(Tool, frozen=True, kw_only=True):
    """List the triggers, of all workflows or of one."""

    name = method = "list_triggers"
    category = "triggers"
    route = "GET /api/triggers"
    reply = TriggerPage

    workflow_id: limits.Id | None = None
    """Only those of this workflow, by id or slug."""
    limit: limits.Page = 50
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class CreateTrigger(Tool, frozen=True, kw_only=True):
    """Let a workflow start at certain times, or when somebody posts to a URL."""

    name = method = "create_trigger"
    category = "triggers"
    route = "POST /api/triggers"
    reply = TriggerView
    timeout = WRITE

    workflow_id: limits.Id
    """The workflow's id or slug."""
    title: limits.Name
    """What people see."""
    kind: TriggerKind
    """`schedule`: at times; `webhook`: by a request from outside; `manual`: by a person's click."""
    schedule: limits.Label | None = None
    """Cron expression with five fields, e.g. `0 6 * * 1-5`; for a schedule."""
    timezone: limits.Label = "UTC"
    """In which the schedule is meant, e.g. `Europe/Berlin`."""
    variables: dict[str, object] = {}
    """What the workflow's variables get; `{{ body.… }}` takes from what a webhook's caller sent."""
    enabled: bool = True
    """Whether it starts anything."""


class UpdateTrigger(Tool, frozen=True, kw_only=True):
    """Change a trigger, or switch it off and on. What is not given stays as it is."""

    name = method = "update_trigger"
    category = "triggers"
    route = "PUT /api/triggers/{trigger_id}"
    reply = TriggerView
    timeout = WRITE

    trigger_id: limits.Id
    """The trigger's id."""
    title: limits.Name | None = None
    """What people see."""
    schedule: limits.Label | None = None
    """Cron expression with five fields."""
    timezone: limits.Label | None = None
    """In which the schedule is meant, e.g. `Europe/Berlin`."""
    variables: dict[str, object] | None = None
    """All of them."""
    enabled: bool | None = None
    """Whether it starts anything."""


class DeleteTrigger(Tool, frozen=True, kw_only=True):
    """Remove a trigger. What it has started goes on."""

    name = method = "delete_trigger"
    category = "triggers"
    route = "DELETE /api/triggers/{trigger_id}"
    reply = TriggerDeleted
    timeout = WRITE

    trigger_id: limits.Id
    """The trigger's id."""
