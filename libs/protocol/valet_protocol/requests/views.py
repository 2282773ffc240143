"""Replies of the session ledger: what commands and reads give back."""

from typing import Literal

import msgspec

from valet_protocol.events.agent import AgentError, FileChange, Finding, Question, TodoItem, Tokens, WorkRef
from valet_protocol.events.facts import (
    Attachment,
    CommandName,
    Outcome,
    PromptKind,
    PromptMode,
    Role,
    Sender,
    SessionPolicy,
)
from valet_protocol.events.machine import ProcessInfo, Tunnel
from valet_protocol.requests.base import Reply, SessionStatus


class Done(Reply, frozen=True, kw_only=True):
    """A command took effect at this sequence."""

    seq: int


class Accepted(Reply, frozen=True, kw_only=True):
    """A prompt is in the log."""

    prompt_id: str
    seq: int
    status: Literal["queued", "dispatched", "done"]


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
    """A prompt and what became of it."""

    prompt_id: str
    content: str
    author: str
    mode: PromptMode
    kind: PromptKind = "prompt"
    channel: str = "web:default"
    model: str = ""
    attachments: list[Attachment] = []
    status: Literal["queued", "steering", "dispatched", "done", "withdrawn", "dropped"] = "queued"
    """Waits; is being handed to the running turn; has a turn that runs; has a turn that ended, however it ended; was
    taken back; or its session ended before it had a turn."""
    turn_id: str | None = None
    """Its turn, once it has one: several prompts may share one."""
    sender: Sender | None = None
    """The session whose agent wrote it; none for a person's."""
    seq: int
    """Sequence of the event that accepted it; stable, so it is the paging cursor."""


class PromptPage(Reply, frozen=True, kw_only=True):
    """A page of prompts."""

    items: list[PromptView]
    next: int | None
    """Pass as `after` for the next page; none at the end."""


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
    kind: PromptKind = "prompt"
    channel: str = "web:default"
    prompt_ids: list[str] = []
    """All prompts of the turn: collected ones, and those that were steered into it."""
    models: list[str] = []
    """The models that had it, in order; more than one where one could not answer."""
    seq: int


class TurnPage(Reply, frozen=True, kw_only=True):
    """A page of turns."""

    items: list[TurnView]
    next: int | None
    """Pass as `after` for the next page; none at the end."""


class ServiceView(Reply, frozen=True, kw_only=True):
    """A part of a sandbox that may be missing."""

    service: str
    """`vscode`, `vnc`, `ttyd`, `gateway`, `processes`."""
    state: Literal["running", "stopped"]
    detail: str = ""
    """Why, for people."""
    since: str
    """RFC 3339."""


class BootStepView(Reply, frozen=True, kw_only=True):
    """A step of a sandbox's boot."""

    step: str
    """`environment`, `git`, `clone`, `persona`, `desktop`, `vscode`, `terminal`, `gateway`, `processes`, `opencode`."""
    ms: int
    """How long it took, milliseconds."""
    outcome: Literal["ok", "absent", "failed"]
    """`absent`: this machine does not have it; `failed`: it has it and it did not start."""
    detail: str = ""
    """Why, for people."""


class SandboxView(Reply, frozen=True, kw_only=True):
    """What there is in a session's sandbox. Without a sandbox nothing runs, so only `boot` stays."""

    tunnels: list[Tunnel] = []
    """Ports that people reach at `/t/<name>/` of its gateway, by name."""
    processes: list[ProcessInfo] = []
    """Those that run, then those that ended lately, the latest of them first; each as the log last told of it."""
    services: list[ServiceView] = []
    """Parts that may be missing and have been seen in this sandbox, by name."""
    boot: list[BootStepView] = []
    """The steps of the last boot, in the order in which they were over."""


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
    """Turns so far; of a fork or an import, those taken over too."""
    active_turn: TurnView | None = None
    last_turn: TurnView | None = None
    queued: list[PromptView] = []
    questions: list[QuestionView] = []
    """Open ones."""
    todos: list[TodoItem] = []
    commands: list["CommandView"] = []
    """Requested and without a result."""
    policy: SessionPolicy = SessionPolicy()
    role: Role = "owner"
    """The role of whoever asks."""
    source_session: str | None = None
    """The session it was forked or imported from."""
    work: WorkRef | None = None
    """The latest saved work."""
    parent: str | None = None
    """The session whose agent asked for it."""
    ancestors: list[str] = []
    """Every session above it, its parent first."""
    children: int = 0
    """How many sessions its agent has asked for, those that have ended too."""
    orchestrator: bool = False
    """Whether its agent directs others."""
    completed: Outcome | None = None
    """Where its own agent ended it: whether its task was done; `status_detail` says what the agent said of it."""
    sandbox: SandboxView | None = None
    """What there is in its sandbox; none in lists of sessions."""
    seq: int
    """Sequence of the last event in this view."""


class SessionPage(Reply, frozen=True, kw_only=True):
    """A page of sessions."""

    items: list[SessionView]
    next: str | None
    """Pass as `before` for the next page; none at the end."""


class ImageView(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """A picture that the agent has shown."""

    image_id: str
    url: str
    """Its path at the API: for who may see the session that shows it, a fork's too."""
    media_type: str = ""
    """e.g. `image/png`."""
    bytes: int = 0
    """Its size."""


class PartView(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message: text, reasoning, a tool call, a picture, or what the agent said in a channel by itself."""

    part_id: str
    kind: Literal["text", "reasoning", "tool", "image", "channel_reply"]
    text: str | None = None
    """Of a picture what is to be seen, of a channel reply what was said."""
    tool: str | None = None
    call_id: str | None = None
    status: str | None = None
    input: dict[str, object] | None = None
    output: str | None = None
    title: str | None = None
    error: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    channel: str | None = None
    """Of a channel reply: where it was said."""
    images: list[ImageView] = []
    """The picture, or those that went with a channel reply."""
    conversation: str | None = None
    """Of a tool call that started a sub-agent, or had one go on: its conversation, `parent_session` of its messages."""
    messages: list["MessageView"] = []
    """Where nested messages were asked for: what the sub-agent said and did for this call."""
    more: int | None = None
    """Of a sub-agent with more messages than are here: ask for its `conversation` with this as `after`."""
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
    """The sub-agent's conversation it belongs to; none for the main one."""
    complete: bool
    channel: str = "web:default"
    """The conversation it belongs to."""
    attachments: list[Attachment] = []
    """Of a person's message."""
    sender: Sender | None = None
    """The session whose agent wrote it, where it is a prompt that no person wrote."""
    reverted: bool = False
    """Whether the conversation was taken back to before it."""
    created_at: str
    seq: int
    """Sequence of the event that began the message; stable, so it is the paging cursor."""


class MessagePage(Reply, frozen=True, kw_only=True):
    """A page of messages."""

    items: list[MessageView]
    next: int | None
    """Pass as `after` for the next page; none at the end, and on a page that was asked for with `before`."""
    previous: int | None = None
    """On a page that was asked for with `before`: pass as `before` for the one before it; none at the beginning."""


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


class CommandView(Reply, frozen=True, kw_only=True):
    """A command and its result."""

    request_id: str
    command: CommandName
    status: Literal["requested", "completed", "failed", "timed_out"]
    result: dict[str, object] = {}
    error: str | None = None
    """Why it failed or timed out."""
    due_at: str
    """When it has timed out, RFC 3339."""
    seq: int


class ReviewView(Reply, frozen=True, kw_only=True):
    """A review of the session's changes."""

    turn_id: str
    summary: str
    findings: list[Finding]
    seq: int


class ParticipantView(Reply, frozen=True, kw_only=True):
    """Somebody who takes part."""

    user: str
    role: Role
    link_id: str | None = None


class ShareLinkView(Reply, frozen=True, kw_only=True):
    """A link by which people may join."""

    link_id: str
    role: Role
    expires_at: str | None
    created_by: str


class ParticipantList(Reply, frozen=True, kw_only=True):
    """Who takes part. The owner is the first."""

    participants: list[ParticipantView]
    links: list[ShareLinkView] = []
    """Valid ones; for owners."""


class StateView(Reply, frozen=True, kw_only=True):
    """A session as it was."""

    at: int
    """Sequence of the last event that is in it."""
    session: SessionView
    messages: list[MessageView]
    next: int | None
    """Pass as `after` for more messages; none at the end."""
    diff: DiffView


class ForkPlan(Reply, frozen=True, kw_only=True):
    """What a fork would start from."""

    at: int
    """Sequence of the source's last event that is taken over."""
    work: WorkRef | None
    """The files and the agent's conversation as they were; none where no turn had ended by then."""


class ImagePlace(Reply, frozen=True, kw_only=True):
    """Where a picture lies."""

    session_id: str
    """The session whose agent showed it, or which it was imported with: its object is
    `sessions/<session>/images/<image>`."""


class SuperfluousWork(Reply, frozen=True, kw_only=True):
    """Saved work that nothing needs any more."""

    objects: list[str]
    """Names in the object store, the oldest first."""
