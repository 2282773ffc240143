"""Requests between services and from a sandbox: what is asked over NATS and what comes back.

A reply is the JSON of the struct named at the request, or — with the header `Valet-Problem: <status>` — a `Problem`.
Commands go to `subjects.ledger_command(session_id, <method>)`; a command's reply is sent when the read model has
reached the sequence of its last fact, so whoever posts and then reads sees their own write.
"""

from typing import ClassVar, Literal

import msgspec

from valet_protocol.events.agent import AgentError, FileChange, Question, TodoItem, Tokens
from valet_protocol.events.facts import PromptMode, SessionPolicy

SessionStatus = Literal[
    "requested",
    "provisioning",
    "booting",
    "ready",
    "busy",
    "lost",
    "hibernated",
    "restoring",
    "failed",
    "terminated",
]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every request. `method` is the last token of its subject."""

    method: ClassVar[str]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every reply and view."""


# -- commands to the session ledger ------------------------------------------------------------------------


class CreateSession(Request, frozen=True, kw_only=True):
    """Start a session. The id is made by the caller, so that a retry is the same session. Reply: `SessionView`."""

    method: ClassVar[str] = "create_session"
    session_id: str
    owner: str
    title: str = ""
    repo: str | None = None
    branch: str | None = None
    model: str
    policy: SessionPolicy = SessionPolicy()
    idempotency_key: str | None = None


class SubmitPrompt(Request, frozen=True, kw_only=True):
    """Give a session a prompt. Reply: `Accepted`. The same prompt id again gives the same reply."""

    method: ClassVar[str] = "submit_prompt"
    session_id: str
    user: str
    prompt_id: str
    content: str
    mode: PromptMode = "queue"
    channel: str = "web:default"
    model: str | None = None
    idempotency_key: str | None = None


class AnswerQuestion(Request, frozen=True, kw_only=True):
    """Answer a question or permission; the first answer wins. Reply: `Done`."""

    method: ClassVar[str] = "answer_question"
    session_id: str
    user: str
    question_id: str | None = None
    """None answers the only open one."""
    answers: list[list[str]]


class AbortTurn(Request, frozen=True, kw_only=True):
    """Stop the running turn. Reply: `Done`. Nothing running is refused with `nothing_running`."""

    method: ClassVar[str] = "abort_turn"
    session_id: str
    user: str


class TerminateSession(Request, frozen=True, kw_only=True):
    """End a session and its sandbox for good. Its history stays readable. Reply: `Done`."""

    method: ClassVar[str] = "terminate_session"
    session_id: str
    user: str


# -- requests from a sandbox (`subjects.sandbox_request`) --------------------------------------------------


class AttachRunner(Request, frozen=True, kw_only=True):
    """A runner of some epoch takes its session over. Reply: `Attached`; refused with `replaced` when stale."""

    method: ClassVar[str] = "attach_runner"
    session_id: str
    epoch: int
    runner_version: str
    opencode_version: str | None = None


# -- reads -------------------------------------------------------------------------------------------------


class GetSession(Request, frozen=True, kw_only=True):
    """Reply: `SessionView`. A session of somebody else is `session_not_found`."""

    method: ClassVar[str] = "get_session"
    session_id: str
    user: str


class ListSessions(Request, frozen=True, kw_only=True):
    """Newest first, of one user. Goes to `subjects.ledger_query`. Reply: `SessionPage`."""

    method: ClassVar[str] = "list_sessions"
    user: str
    limit: int = 50
    before: str | None = None
    """Session id to continue below."""


class ListMessages(Request, frozen=True, kw_only=True):
    """Messages in the order of the log. Reply: `MessagePage`."""

    method: ClassVar[str] = "list_messages"
    session_id: str
    user: str
    limit: int = 100
    after: int = 0
    """Sequence of the last message already seen."""


class GetDiff(Request, frozen=True, kw_only=True):
    """The workspace against the session's base, as of the end of the last turn. Reply: `DiffView`."""

    method: ClassVar[str] = "get_diff"
    session_id: str
    user: str


class ReadArchive(Request, frozen=True, kw_only=True):
    """Archived events of a session, for what the stream no longer holds. Reply: `ArchivePage`."""

    method: ClassVar[str] = "read_archive"
    session_id: str
    after: int
    before: int
    """Exclusive upper sequence."""
    limit: int = 500


class Authenticate(Request, frozen=True, kw_only=True):
    """Who has this bearer token? Goes to `subjects.service("api", …)`. Reply: `Identity`."""

    method: ClassVar[str] = "authenticate"
    token: str


class HandOver(Request, frozen=True, kw_only=True):
    """An accepted client connection, authenticated by api, passed to event-bus together with its socket.

    Sent over a unix socket (SCM_RIGHTS), not over NATS. The event bus writes the response head itself.
    """

    method: ClassVar[str] = "hand_over"
    kind: Literal["sse", "ws"]
    user: str
    session_id: str | None = None
    """For SSE."""
    after: int = 0
    """For SSE: the last sequence the client has."""
    ws_key: str | None = None
    """For WebSocket: `Sec-WebSocket-Key` of the request."""


# -- replies -----------------------------------------------------------------------------------------------


class Done(Reply, frozen=True, kw_only=True):
    """A command took effect at this sequence."""

    seq: int


class Accepted(Reply, frozen=True, kw_only=True):
    """A prompt is in the log."""

    prompt_id: str
    seq: int
    status: Literal["queued", "dispatched", "done"]


class Attached(Reply, frozen=True, kw_only=True):
    """The runner holds the session from this sequence on."""

    seq: int
    base_commit: str | None = None
    """Base commit of the session if an earlier runner has found one."""
    active_turn: str | None = None
    """A turn dispatched but never started, which will be delivered again."""


class QuestionView(Reply, frozen=True, kw_only=True):
    """A question or permission and its answer."""

    question_id: str
    kind: Literal["question", "permission"]
    status: Literal["open", "answered", "dropped"]
    questions: list[Question]
    due_at: str | None
    """When its default is given, RFC 3339."""
    answers: list[list[str]] | None = None
    answered_by: str | None = None
    seq: int


class PromptView(Reply, frozen=True, kw_only=True):
    """A prompt that has not become a turn yet."""

    prompt_id: str
    content: str
    author: str
    mode: PromptMode
    seq: int


class TurnView(Reply, frozen=True, kw_only=True):
    """A turn: a prompt and what the agent made of it."""

    turn_id: str
    prompt_id: str
    status: Literal["dispatched", "running", "completed", "failed", "interrupted"]
    error: AgentError | None
    cost: float
    tokens: Tokens
    started_at: str | None
    ended_at: str | None
    first_token_ms: int | None
    seq: int


class SessionView(Reply, frozen=True, kw_only=True):
    """A session as people see it."""

    id: str
    status: SessionStatus
    status_detail: str
    """Why, where the status needs an explanation (a failure, a loss)."""
    owner: str
    title: str
    repo: str | None
    branch: str | None
    model: str
    created_at: str
    updated_at: str
    epoch: int
    cost: float
    tokens: Tokens
    turns: int
    """Turns so far."""
    active_turn: TurnView | None = None
    last_turn: TurnView | None = None
    queued: list[PromptView] = []
    questions: list[QuestionView] = []
    """Open ones."""
    todos: list[TodoItem] = []
    seq: int
    """Sequence of the last event in this view."""


class SessionPage(Reply, frozen=True, kw_only=True):
    """A page of sessions."""

    items: list[SessionView]
    next: str | None
    """Pass as `before` for the next page; none at the end."""


class PartView(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message: text, reasoning or a tool call."""

    part_id: str
    kind: Literal["text", "reasoning", "tool"]
    text: str | None = None
    tool: str | None = None
    call_id: str | None = None
    status: str | None = None
    input: dict[str, object] | None = None
    output: str | None = None
    title: str | None = None
    error: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    seq: int


class MessageView(Reply, frozen=True, kw_only=True):
    """A message of the conversation."""

    id: str
    role: Literal["user", "assistant"]
    turn_id: str | None
    author: str | None
    """User id for a person's message."""
    text: str
    parts: list[PartView]
    finish: str | None
    model: str | None
    cost: float
    tokens: Tokens
    error: AgentError | None
    parent_session: str | None
    complete: bool
    created_at: str
    seq: int
    """Sequence of the event that began the message; stable, so it is the paging cursor."""


class MessagePage(Reply, frozen=True, kw_only=True):
    """A page of messages."""

    items: list[MessageView]
    next: int | None
    """Pass as `after` for the next page; none at the end."""


class DiffView(Reply, frozen=True, kw_only=True):
    """What the session changed."""

    base_commit: str | None
    head_commit: str | None
    branch: str | None
    files: list[FileChange]
    patch: str
    truncated: bool
    seq: int


class ArchivedEvent(Reply, frozen=True, kw_only=True):
    """One stored event."""

    seq: int
    event: msgspec.Raw


class ArchivePage(Reply, frozen=True, kw_only=True):
    """Archived events in order."""

    items: list[ArchivedEvent]
    complete: bool
    """Whether the range is exhausted."""


class Identity(Reply, frozen=True, kw_only=True):
    """Who a token belongs to."""

    user: str
    name: str
    admin: bool
