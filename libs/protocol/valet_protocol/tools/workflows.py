"""Workflows: steps that are carried out without an agent deciding each of them. Answered by automation."""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, WRITE, Tool


class WorkflowBrief(Reply, frozen=True, kw_only=True):
    """A workflow in a few words."""

    id: str
    slug: str
    """Its name in URLs and commands, e.g. `nightly-tests`."""
    title: str
    description: str = ""
    enabled: bool
    version: int
    """Goes up by one with each change."""
    tags: list[str] = []
    updated_at: str
    """RFC 3339."""


class WorkflowPage(Reply, frozen=True, kw_only=True):
    """Workflows, by slug."""

    items: list[WorkflowBrief]
    next: str | None = None
    """Pass as `after` for the next page; none at the end."""


class WorkflowView(Reply, frozen=True, kw_only=True):
    """A workflow with its definition."""

    workflow: WorkflowBrief
    definition: dict[str, object]
    """Its variables and steps."""


class WorkflowDeleted(Reply, frozen=True, kw_only=True):
    """The workflow is gone; its executions stay readable."""

    id: str
    deleted: bool
    """False where it was gone before."""


class ListWorkflows(Tool, frozen=True, kw_only=True):
    """List the workflows there are."""

    name = method = "list_workflows"
    category = "workflows"
    route = "GET /api/workflows"
    reply = WorkflowPage

    tag: limits.Label | None = None
    """Only those with this tag."""
    limit: limits.Page = 50
    """How many at most."""
    after: limits.Id | None = None
    """`next` of the page before."""


class GetWorkflow(Tool, frozen=True, kw_only=True):
    """Read a workflow with its definition, as it is now or as it was."""

    name = method = "get_workflow"
    category = "workflows"
    route = "GET /api/workflows/{workflow_id}"
    reply = WorkflowView

    workflow_id: limits.Id
    """Its id or slug."""
    version: limits.Number | None = None
    """An earlier version; none for the present one."""


class CreateWorkflow(Tool, frozen=True, kw_only=True):
    """Make a workflow. A slug that is taken is refused with `slug_taken`; see sync_workflow to make or replace."""

    name = method = "create_workflow"
    category = "workflows"
    route = "POST /api/workflows"
    reply = WorkflowView
    timeout = WRITE

    slug: limits.Slug
    """Its name in URLs and commands, e.g. `nightly-tests`."""
    title: limits.Name
    """What people see."""
    definition: dict[str, object]
    """Its variables and steps; check it with validate_workflow first."""
    description: limits.Note | None = None
    """What it is for."""
    tags: list[limits.Label] = []
    """Words by which it is found."""
    enabled: bool = True
    """Whether triggers may start it."""


class UpdateWorkflow(Tool, frozen=True, kw_only=True):
    """Change a workflow; each change is a new version. What is not given stays as it is."""

    name = method = "update_workflow"
    category = "workflows"
    route = "PUT /api/workflows/{workflow_id}"
    reply = WorkflowView
    timeout = WRITE

    workflow_id: limits.Id
    """Its id or slug."""
    title: limits.Name | None = None
    """What people see."""
    definition: dict[str, object] | None = None
    """All of its variables and steps."""
    description: limits.Note | None = None
    """What it is for."""
    tags: list[limits.Label] | None = None
    """All words by which it is to be found."""
    enabled: bool | None = None
    """Whether triggers may start it."""
    expected_version: limits.Number | None = None
    """The version you have read: refused with `version_conflict` where it has changed since."""


class DeleteWorkflow(Tool, frozen=True, kw_only=True):
    """Remove a workflow and its triggers. What is running of it goes on to its end."""

    name = method = "delete_workflow"
    category = "workflows"
    route = "DELETE /api/workflows/{workflow_id}"
    reply = WorkflowDeleted
    timeout = WRITE

    workflow_id: limits.Id
    """Its id or slug."""


class WorkflowFault(Reply, frozen=True, kw_only=True):
    """Something wrong in a definition."""

    path: str
    """Where, e.g. `steps[2].run`."""
    text: str
    """What is wrong and what it could be."""


class WorkflowValidated(Reply, frozen=True, kw_only=True):
    """What a check found."""

    valid: bool
    faults: list[WorkflowFault] = []


class ValidateWorkflow(Tool, frozen=True, kw_only=True):
    """Check a definition without storing anything."""

    name = method = "validate_workflow"
    category = "workflows"
    route = "POST /api/workflows/validate"
    reply = WorkflowValidated

    definition: dict[str, object]
    """Variables and steps."""


class WorkflowStarted(Reply, frozen=True, kw_only=True):
    """An execution has begun."""

    execution_id: str
    """Made from this call's `request_id`; follow it with get_execution."""
    workflow_id: str
    version: int
    """The version that runs."""


class RunWorkflow(Tool, frozen=True, kw_only=True):
    """Start a workflow. Comes back at once; follow the execution with get_execution."""

    name = method = "run_workflow"
    category = "workflows"
    route = "POST /api/workflows/{workflow_id}/run"
    reply = WorkflowStarted
    timeout = LONG

    workflow_id: limits.Id
    """Its id or slug."""
    variables: dict[str, object] = {}
    """Values of its variables; those not given have their defaults."""


class SyncWorkflow(Tool, frozen=True, kw_only=True):
    """Make the workflow of this slug exactly this, whether it was there or not. The same again changes nothing.

    Use it for definitions that are kept in a repository.
    """

    name = method = "sync_workflow"
    category = "workflows"
    route = "POST /api/workflows/sync"
    reply = WorkflowView
    timeout = WRITE

    slug: limits.Slug
    """Its name in URLs and commands."""
    title: limits.Name
    """What people see."""
    definition: dict[str, object]
    """Its variables and steps."""
    description: limits.Note | None = None
    """What it is for."""
    tags: list[limits.Label] = []
    """Words by which it is found."""
    enabled: bool = True
    """Whether triggers may start it."""


class WorkflowVersion(Reply, frozen=True, kw_only=True):
    """One version of a workflow."""

    version: int
    summary: str = ""
    """What changed, as whoever changed it said."""
    changed_by: str
    """`session:<id>`, or a person's user id."""
    created_at: str
    """RFC 3339."""


class WorkflowVersions(Reply, frozen=True, kw_only=True):
    """Versions, the newest first."""

    items: list[WorkflowVersion]
    next: int | None = None
    """Pass as `before` for the next page; none at the end."""


class ListWorkflowVersions(Tool, frozen=True, kw_only=True):
    """List how a workflow has changed."""

    name = method = "list_workflow_versions"
    category = "workflows"
    route = "GET /api/workflows/{workflow_id}/versions"
    reply = WorkflowVersions

    workflow_id: limits.Id
    """Its id or slug."""
    limit: limits.Page = 20
    """How many at most."""
    before: limits.Number | None = None
    """`next` of the page before."""


class RollbackWorkflow(Tool, frozen=True, kw_only=True):
    """Give a workflow the definition of an earlier version again, as a new version."""

    name = method = "rollback_workflow"
    category = "workflows"
    route = "POST /api/workflows/{workflow_id}/rollback"
    reply = WorkflowView
    timeout = WRITE

    workflow_id: limits.Id
    """Its id or slug."""
    version: limits.Number
    """The version to take."""


class WorkflowProposal(Reply, frozen=True, kw_only=True):
    """A change that waits for a person's decision."""

    id: str
    workflow_id: str
    summary: str
    status: Literal["waiting", "approved", "rejected", "applied"]
    proposed_by: str
    """`session:<id>`, or a person's user id."""
    created_at: str
    """RFC 3339."""


class WorkflowProposals(Reply, frozen=True, kw_only=True):
    """Proposals, the newest first."""

    items: list[WorkflowProposal]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class ProposeWorkflowChange(Tool, frozen=True, kw_only=True):
    """Propose another definition for a workflow; a person decides.

    Use it instead of update_workflow for a workflow that others rely on.
    """

    name = method = "propose_workflow_change"
    category = "workflows"
    route = "POST /api/workflows/{workflow_id}/proposals"
    reply = WorkflowProposal
    timeout = WRITE

    workflow_id: limits.Id
    """Its id or slug."""
    definition: dict[str, object]
    """All of its variables and steps, as they should be."""
    summary: limits.Note
    """What would change and why."""


class ListWorkflowProposals(Tool, frozen=True, kw_only=True):
    """List the changes that were proposed for a workflow and what was decided."""

    name = method = "list_workflow_proposals"
    category = "workflows"
    route = "GET /api/workflows/{workflow_id}/proposals"
    reply = WorkflowProposals

    workflow_id: limits.Id
    """Its id or slug."""
    status: Literal["waiting", "approved", "rejected", "applied"] | None = None
    """Only those; none for all."""
    limit: limits.Page = 20
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class ApplyWorkflowProposal(Tool, frozen=True, kw_only=True):
    """Make a proposal that a person has approved the workflow's next version. Not approved: `not_approved`."""

    name = method = "apply_workflow_proposal"
    category = "workflows"
    route = "POST /api/workflows/{workflow_id}/proposals/{proposal_id}/apply"
    reply = WorkflowView
    timeout = WRITE

    workflow_id: limits.Id
    """Its id or slug."""
    proposal_id: limits.Id
    """The proposal's id."""
