"""Agent events: what the session's runner saw OpenCode do. Only the runner writes them."""

from typing import Literal

from valet_protocol.events.envelope import Data

TurnStatus = Literal["completed", "failed", "interrupted"]
ToolStatus = Literal["pending", "running", "completed", "error"]
TextKind = Literal["text", "reasoning"]


class Tokens(Data, frozen=True, kw_only=True):
    """Token counts of a step, message or turn."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0


class AgentError(Data, frozen=True, kw_only=True):
    """An error as the agent reported it."""

    name: str
    """OpenCode's error name, e.g. `APIError`, `MessageAbortedError`; ours are lower case words."""
    message: str
    status: int | None = None
    """HTTP status of the provider where there was one."""


class RunnerReady(Data, frozen=True, kw_only=True):
    """The workspace is there, OpenCode is healthy, prompts are taken."""

    opencode_version: str
    base_commit: str | None = None
    """HEAD of the clone before the agent touched it; diffs of the session are against it."""
    branch: str | None = None
    boot_ms: int
    """From the runner's start to this event."""


class BootFailed(Data, frozen=True, kw_only=True):
    """The runner could not make the session usable, for a reason a retry does not cure."""

    stage: Literal["clone", "opencode"]
    detail: str
    """The failing program's own words."""


class TurnStarted(Data, frozen=True, kw_only=True):
    """OpenCode has the prompt."""

    turn_id: str
    prompt_id: str
    opencode_session: str


class MessageCreated(Data, frozen=True, kw_only=True):
    """The agent began a message (each model step is one)."""

    message_id: str
    role: Literal["user", "assistant"] = "assistant"
    model: str | None = None
    parent_session: str | None = None
    """OpenCode session of a sub-agent when the message is not of the turn's own session."""


class TextCompleted(Data, frozen=True, kw_only=True):
    """A text or reasoning part is whole; its deltas are superseded."""

    message_id: str
    part_id: str
    kind: TextKind
    text: str


class ToolUpdated(Data, frozen=True, kw_only=True):
    """A tool call changed state. Each event carries the whole state of the call."""

    message_id: str
    part_id: str
    call_id: str
    tool: str
    status: ToolStatus
    input: dict[str, object] = {}
    output: str | None = None
    """Output so far, or the final one; cut to its end when long."""
    title: str | None = None
    error: str | None = None
    metadata: dict[str, object] = {}
    started_ms: int | None = None
    ended_ms: int | None = None


class MessageCompleted(Data, frozen=True, kw_only=True):
    """A message is whole. Its full text is here, so its deltas may go."""

    message_id: str
    text: str
    """All text parts, joined by a blank line; without reasoning."""
    finish: str | None = None
    """Why the model stopped: `stop`, `tool-calls`, `length`, …; none when it was cut short."""
    model: str | None = None
    cost: float = 0.0
    """US dollars."""
    tokens: Tokens = Tokens()
    error: AgentError | None = None
    parent_session: str | None = None


class QuestionOption(Data, frozen=True, kw_only=True):
    """One thing that can be answered."""

    label: str
    description: str = ""


class Question(Data, frozen=True, kw_only=True):
    """One question of a set."""

    question: str
    header: str = ""
    options: list[QuestionOption] = []
    multiple: bool = False
    custom: bool = True
    """Whether free text is taken."""


class QuestionAsked(Data, frozen=True, kw_only=True):
    """The agent asks people something, or for a permission. It waits until answered or its deadline passes."""

    question_id: str
    kind: Literal["question", "permission"]
    questions: list[Question]
    message_id: str | None = None
    call_id: str | None = None
    permission: str | None = None
    """For a permission: its kind, e.g. `bash`, `edit`, `external_directory`."""
    patterns: list[str] = []


class QuestionResolved(Data, frozen=True, kw_only=True):
    """The agent got the answer, or no longer waits for one."""

    question_id: str
    outcome: Literal["answered", "rejected", "dropped"]


class TodoItem(Data, frozen=True, kw_only=True):
    """One line of the agent's list."""

    content: str
    status: str
    priority: str = ""


class TodoUpdated(Data, frozen=True, kw_only=True):
    """The agent's to-do list, whole."""

    todos: list[TodoItem]


class FileChange(Data, frozen=True, kw_only=True):
    """One file in a diff."""

    path: str
    status: Literal["added", "modified", "deleted", "renamed"]
    additions: int
    deletions: int


class GitChanged(Data, frozen=True, kw_only=True):
    """The workspace against the session's base commit, untracked files included. Sent at the end of a turn."""

    base_commit: str | None
    head_commit: str | None
    branch: str | None
    files: list[FileChange]
    patch: str
    truncated: bool = False
    """Whether `patch` was cut at the size limit; `files` is always complete."""


class StatusChanged(Data, frozen=True, kw_only=True):
    """What the agent is doing, where no other event says so: waiting to retry a provider, for one."""

    status: Literal["busy", "retrying", "idle"]
    attempt: int | None = None
    message: str = ""
    retry_at_ms: int | None = None


class SessionTitled(Data, frozen=True, kw_only=True):
    """The agent named the conversation."""

    title: str


class OpencodeRestarted(Data, frozen=True, kw_only=True):
    """OpenCode ended unexpectedly and was started again."""

    detail: str


class TurnEnded(Data, frozen=True, kw_only=True):
    """The turn is over."""

    turn_id: str
    status: TurnStatus
    error: AgentError | None = None
    cost: float = 0.0
    """US dollars, all messages of the turn, sub-agents included."""
    tokens: Tokens = Tokens()
    duration_ms: int = 0
    first_token_ms: int | None = None
    """From the prompt's hand-over to OpenCode to the first streamed text; none if there was none."""
