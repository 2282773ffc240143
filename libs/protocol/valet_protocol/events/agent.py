"""Agent events: what the session's runner saw OpenCode do. Only the runner writes them."""

from typing import Literal

from valet_protocol.events.envelope import Data

TurnStatus = Literal["completed", "failed", "interrupted"]
ToolStatus = Literal["pending", "running", "completed", "error"]
TextKind = Literal["text", "reasoning"]


class Tokens(Data, frozen=True, kw_only=True):
    """Token counts of a step, message or turn."""

    input: int = 0
    """Read by the model, not from its cache."""
    output: int = 0
    """Written by the model."""
    reasoning: int = 0
    """Written while thinking."""
    cache_read: int = 0
    """Read from the provider's cache."""
    cache_write: int = 0
    """Written to the provider's cache."""


class AgentError(Data, frozen=True, kw_only=True):
    """An error as the agent reported it."""

    name: str
    """OpenCode's error name, e.g. `APIError`, `MessageAbortedError`; ours are lower case words."""
    message: str
    """The error in the words of whoever raised it."""
    status: int | None = None
    """HTTP status of the provider where there was one."""


class RunnerReady(Data, frozen=True, kw_only=True):
    """The workspace is there, OpenCode is healthy, prompts are taken."""

    opencode_version: str
    """Version of OpenCode."""
    base_commit: str | None = None
    """HEAD of the clone before the agent touched it; diffs of the session are against it."""
    branch: str | None = None
    """Branch the workspace is on."""
    boot_ms: int
    """From the runner's start to this event."""


class BootFailed(Data, frozen=True, kw_only=True):
    """The runner could not make the session usable, for a reason a retry does not cure."""

    stage: Literal["clone", "opencode"]
    """What failed: cloning the repository, or starting OpenCode."""
    detail: str
    """The failing program's own words."""


class TurnStarted(Data, frozen=True, kw_only=True):
    """OpenCode has the prompt."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    prompt_id: str
    """The prompt's id, made by whoever submitted it."""
    opencode_session: str
    """OpenCode's session id, the same for all turns of the session."""


class MessageCreated(Data, frozen=True, kw_only=True):
    """The agent began a message (each model step is one)."""

    message_id: str
    """OpenCode's id of the message."""
    role: Literal["user", "assistant"] = "assistant"
    """Who speaks."""
    model: str | None = None
    """Model as `provider/model`."""
    parent_session: str | None = None
    """OpenCode session of a sub-agent when the message is not of the turn's own session."""


class TextCompleted(Data, frozen=True, kw_only=True):
    """A text or reasoning part is whole; its deltas are superseded."""

    message_id: str
    """OpenCode's id of the message."""
    part_id: str
    """OpenCode's id of the part."""
    kind: TextKind
    """Whether it is part of the answer or of the thinking."""
    text: str
    """The whole text."""


class ToolUpdated(Data, frozen=True, kw_only=True):
    """A tool call changed state. Each event carries the whole state of the call."""

    message_id: str
    """OpenCode's id of the message."""
    part_id: str
    """OpenCode's id of the part."""
    call_id: str
    """The model's id of the tool call."""
    tool: str
    """The tool's name, e.g. `bash`, `edit`."""
    status: ToolStatus
    """State of the call."""
    input: dict[str, object] = {}
    """Arguments of the call, as the tool defines them."""
    output: str | None = None
    """Output so far, or the final one; cut to its end when long."""
    title: str | None = None
    """The call in a few words, for people."""
    error: str | None = None
    """What went wrong, when it did."""
    metadata: dict[str, object] = {}
    """What the tool adds, e.g. a diff or an exit code."""
    started_ms: int | None = None
    """When it began to run, milliseconds since 1970."""
    ended_ms: int | None = None
    """When it ended, milliseconds since 1970."""


class MessageCompleted(Data, frozen=True, kw_only=True):
    """A message is whole. Its full text is here, so its deltas may go."""

    message_id: str
    """OpenCode's id of the message."""
    text: str
    """All text parts, joined by a blank line; without reasoning."""
    finish: str | None = None
    """Why the model stopped: `stop`, `tool-calls`, `length`, …; none when it was cut short."""
    model: str | None = None
    """Model as `provider/model`."""
    cost: float = 0.0
    """US dollars."""
    tokens: Tokens = Tokens()
    """Tokens used."""
    error: AgentError | None = None
    """What went wrong, when it did."""
    parent_session: str | None = None
    """OpenCode session of a sub-agent when the message is not of the turn's own session."""


class QuestionOption(Data, frozen=True, kw_only=True):
    """One thing that can be answered."""

    label: str
    """The answer to give to choose it."""
    description: str = ""
    """What choosing it means."""


class Question(Data, frozen=True, kw_only=True):
    """One question of a set."""

    question: str
    """The question, whole."""
    header: str = ""
    """The question in a word or two."""
    options: list[QuestionOption] = []
    """What can be chosen; the first is the default."""
    multiple: bool = False
    """Whether several may be chosen."""
    custom: bool = True
    """Whether free text is taken."""


class QuestionAsked(Data, frozen=True, kw_only=True):
    """The agent asks people something, or for a permission. It waits until answered or its deadline passes."""

    question_id: str
    """OpenCode's id of the question or permission."""
    kind: Literal["question", "permission"]
    """A question, or a permission."""
    questions: list[Question]
    """The set, answered together; of a permission, its one question."""
    message_id: str | None = None
    """OpenCode's id of the message that asks, where it says."""
    call_id: str | None = None
    """The tool call that waits, where there is one."""
    permission: str | None = None
    """For a permission: its kind, e.g. `bash`, `edit`, `external_directory`."""
    patterns: list[str] = []
    """For a permission: what it is for, e.g. the command or the paths."""


class QuestionResolved(Data, frozen=True, kw_only=True):
    """The agent got the answer, or no longer waits for one."""

    question_id: str
    """OpenCode's id of the question or permission."""
    outcome: Literal["answered", "rejected", "dropped"]
    """Answered, refused, or no longer waited for because its turn ended."""


class TodoItem(Data, frozen=True, kw_only=True):
    """One line of the agent's list."""

    content: str
    """What is to be done."""
    status: str
    """OpenCode's word, e.g. `pending`, `in_progress`, `completed`."""
    priority: str = ""
    """OpenCode's word, e.g. `high`."""


class TodoUpdated(Data, frozen=True, kw_only=True):
    """The agent's to-do list, whole."""

    todos: list[TodoItem]
    """All lines, in order."""


class FileChange(Data, frozen=True, kw_only=True):
    """One file in a diff."""

    path: str
    """Relative to the workspace."""
    status: Literal["added", "modified", "deleted", "renamed"]
    """What happened to it."""
    additions: int
    """Lines added."""
    deletions: int
    """Lines removed."""


class GitChanged(Data, frozen=True, kw_only=True):
    """The workspace against the session's base commit, untracked files included. Sent at the end of a turn."""

    base_commit: str | None
    """The commit compared with; none in a workspace without commits."""
    head_commit: str | None
    """HEAD now."""
    branch: str | None
    """Branch the workspace is on."""
    files: list[FileChange]
    """Every file that differs."""
    patch: str
    """The difference as `git diff` writes it."""
    truncated: bool = False
    """Whether `patch` was cut at the size limit; `files` is always complete."""


class StatusChanged(Data, frozen=True, kw_only=True):
    """What the agent is doing, where no other event says so: waiting to retry a provider, for one."""

    status: Literal["busy", "retrying", "idle"]
    """What it is doing."""
    attempt: int | None = None
    """Which attempt comes next, counted from 1."""
    message: str = ""
    """The reason, for people."""
    retry_at_ms: int | None = None
    """When it tries again, milliseconds since 1970."""


class SessionTitled(Data, frozen=True, kw_only=True):
    """The agent named the conversation."""

    title: str
    """The title."""


class OpencodeRestarted(Data, frozen=True, kw_only=True):
    """OpenCode ended unexpectedly and was started again."""

    detail: str
    """How it ended, for people."""


class TurnEnded(Data, frozen=True, kw_only=True):
    """The turn is over."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    status: TurnStatus
    """How it ended."""
    error: AgentError | None = None
    """What went wrong, when it did."""
    cost: float = 0.0
    """US dollars, all messages of the turn, sub-agents included."""
    tokens: Tokens = Tokens()
    """Tokens of all its messages, sub-agents included."""
    duration_ms: int = 0
    """From the prompt's hand-over to OpenCode to this event."""
    first_token_ms: int | None = None
    """From the prompt's hand-over to OpenCode to the first streamed text; none if there was none."""


class WorkRef(Data, frozen=True, kw_only=True):
    """Saved work: the workspace's changes and the agent's conversation, as one object of the object store."""

    object: str
    """Its name, `sessions/<session>/saved/<turn>`."""
    bytes: int
    """Size."""
    sha256: str
    """Of the content, hexadecimal."""
    base_commit: str | None = None
    """The commit its patch applies to; none where the workspace had no repository."""


class WorkSaved(Data, frozen=True, kw_only=True):
    """At the end of a turn the work in progress went to the object store."""

    turn_id: str
    """The turn."""
    work: WorkRef
    """Where it is."""
    left_out: list[str] = []
    """Files too large to be saved, relative to the workspace."""


class TurnChanged(Data, frozen=True, kw_only=True):
    """What one turn changed in the workspace, whoever did it. Sent at the end of a turn that changed something."""

    turn_id: str
    """The turn."""
    files: list[FileChange]
    """Every file that differs."""
    patch: str
    """The difference as `git diff` writes it."""
    truncated: bool = False
    """Whether `patch` was cut at the size limit; `files` is always complete."""


class ModelSwitched(Data, frozen=True, kw_only=True):
    """A model could not answer; the turn goes on with the next one of its chain."""

    turn_id: str
    """The turn."""
    from_model: str
    """The model that failed, `provider/model`."""
    to_model: str
    """The model that has the prompt now."""
    error: AgentError
    """Why."""


class PromptTaken(Data, frozen=True, kw_only=True):
    """What became of a prompt that was to go into the running turn."""

    turn_id: str
    """The turn."""
    prompt_id: str
    """The prompt."""
    outcome: Literal["delivered", "missed", "refused"]
    """The agent has it; the turn had ended; or the agent cannot take it while it works."""


class CommandCompleted(Data, frozen=True, kw_only=True):
    """A command was carried out, or could not be."""

    request_id: str
    """The command's id."""
    result: dict[str, object] = {}
    """What it gave, by the command."""
    error: str | None = None
    """Why it could not be done, in the words of whoever refused; none when it was."""


class ConversationReverted(Data, frozen=True, kw_only=True):
    """The conversation and the files were taken back to before a message."""

    message_id: str
    """The message, as the read models know it: it and all later ones of its conversation no longer count."""
    channel: str = "web:default"
    """The conversation."""
    files: list[FileChange] = []
    """Files that were changed back."""


class ConversationUnreverted(Data, frozen=True, kw_only=True):
    """What was taken back counts again, files too."""

    channel: str = "web:default"
    """The conversation."""


class Finding(Data, frozen=True, kw_only=True):
    """One finding of a review."""

    file: str
    """Relative to the workspace; empty for one about the whole."""
    line: int | None = None
    """Line in the file as it is now, counted from 1."""
    severity: Literal["critical", "major", "minor", "info"]
    """How much it matters."""
    text: str
    """The finding."""


class ReviewCompleted(Data, frozen=True, kw_only=True):
    """The agent reviewed the session's changes."""

    turn_id: str
    """The turn."""
    summary: str
    """The review in a few sentences."""
    findings: list[Finding]
    """All findings, the most severe first."""
