"""Pull requests of the repositories the session's person has given Valet access to. Answered by integrations."""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, WRITE, Tool


class PullRequestView(Reply, frozen=True, kw_only=True):
    """A pull request."""

    repo: str
    """`owner/name`."""
    number: int
    url: str
    title: str
    body: str = ""
    state: Literal["open", "closed", "merged"]
    draft: bool = False
    head: str
    """Branch with the changes."""
    base: str
    """Branch they are to go into."""
    author: str
    checks: Literal["none", "pending", "passed", "failed"] = "none"
    """What its checks say, all together."""
    review: Literal["none", "approved", "changes_requested"] = "none"
    updated_at: str
    """RFC 3339."""


class PullRequestPage(Reply, frozen=True, kw_only=True):
    """Pull requests, the latest change first."""

    items: list[PullRequestView]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class CreatePullRequest(Tool, frozen=True, kw_only=True):
    """Open a pull request for a branch that is pushed already.

    One that is open for the same branches is given back instead of a second one.
    """

    name = method = "create_pull_request"
    category = "pull_requests"
    route = "POST /api/create-pull-request"
    reply = PullRequestView
    timeout = LONG

    title: limits.Name
    """What the change does, in one line."""
    body: limits.Text | None = None
    """What reviewers need to know, in Markdown."""
    head: limits.Name
    """Branch with the changes; must be pushed."""
    base: limits.Name | None = None
    """Branch they are to go into; none for the repository's default branch."""
    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""
    draft: bool = False
    """Whether it is not to be reviewed yet."""


class UpdatePullRequest(Tool, frozen=True, kw_only=True):
    """Change a pull request's words or state. What is not given stays as it is."""

    name = method = "update_pull_request"
    category = "pull_requests"
    route = "POST /api/update-pull-request"
    reply = PullRequestView
    timeout = LONG

    number: limits.Number
    """The pull request's number."""
    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""
    title: limits.Name | None = None
    """What the change does, in one line."""
    body: limits.Text | None = None
    """What reviewers need to know, in Markdown; replaces what is there."""
    state: Literal["open", "closed"] | None = None
    """Close it, or open it again."""
    draft: bool | None = None
    """Whether it is not to be reviewed yet."""
    labels: list[limits.Label] | None = None
    """All labels it is to have."""
    reviewers: list[limits.Label] | None = None
    """Whose review to ask for."""


class ListPullRequests(Tool, frozen=True, kw_only=True):
    """List a repository's pull requests."""

    name = method = "list_pull_requests"
    category = "pull_requests"
    route = "GET /api/pull-requests"
    reply = PullRequestPage
    timeout = WRITE

    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""
    state: Literal["open", "closed", "all"] = "open"
    """Only those; merged ones are closed."""
    head: limits.Name | None = None
    """Only those of this branch."""
    limit: limits.Few = 20
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class GetPullRequest(Tool, frozen=True, kw_only=True):
    """Read one pull request with the state of its checks and reviews."""

    name = method = "get_pull_request"
    category = "pull_requests"
    route = "GET /api/pull-request"
    reply = PullRequestView
    timeout = WRITE

    number: limits.Number
    """The pull request's number."""
    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""


class PullRequestComment(Reply, frozen=True, kw_only=True):
    """A comment on a pull request."""

    id: str
    author: str
    body: str
    path: str | None = None
    """The file it is about; none for the whole."""
    line: int | None = None
    """The line in that file."""
    resolved: bool = False
    created_at: str
    """RFC 3339."""


class PullRequestComments(Reply, frozen=True, kw_only=True):
    """Comments, the oldest first."""

    items: list[PullRequestComment]
    next: str | None = None
    """Pass as `after` for the next page; none at the end."""


class ListPullRequestComments(Tool, frozen=True, kw_only=True):
    """Read what reviewers and others have said on a pull request."""

    name = method = "list_pull_request_comments"
    category = "pull_requests"
    route = "GET /api/pull-request-comments"
    reply = PullRequestComments
    timeout = WRITE

    number: limits.Number
    """The pull request's number."""
    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""
    limit: limits.Few = 50
    """How many at most."""
    after: limits.Id | None = None
    """`next` of the page before."""


class CommentOnPullRequest(Tool, frozen=True, kw_only=True):
    """Say something on a pull request, on the whole or on a line, or answer a comment there."""

    name = method = "comment_on_pull_request"
    category = "pull_requests"
    route = "POST /api/pull-request-comments"
    reply = PullRequestComment
    timeout = LONG

    number: limits.Number
    """The pull request's number."""
    body: limits.Text
    """What to say, in Markdown."""
    repo: limits.Name | None = None
    """`owner/name`; none for this session's."""
    path: limits.Name | None = None
    """The file it is about."""
    line: limits.Number | None = None
    """The line in that file."""
    answers: limits.Id | None = None
    """The comment it answers."""
