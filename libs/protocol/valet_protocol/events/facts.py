"""Facts: what the session ledger decided. Only the ledger writes them."""

from typing import Literal

from valet_protocol.events.agent import WorkRef
from valet_protocol.events.envelope import Data

PromptMode = Literal["queue", "steer", "collect"]
PromptKind = Literal["prompt", "command", "shell", "review"]
Role = Literal["owner", "collaborator", "viewer"]
SandboxReason = Literal["created", "prompt", "recovery"]
EndedBy = Literal["runner_lost", "silent", "aborted", "terminated", "failed"]
InterruptedBy = Literal["person", "silent", "steer"]
AnswerSource = Literal["person", "default", "policy"]
CommandName = Literal["revert", "unrevert", "new_conversation", "list_commands"]
ChildChange = Literal[
    "started", "turn_completed", "turn_failed", "turn_interrupted", "completed", "given_up", "failed", "terminated"
]
Outcome = Literal["done", "failed"]


class PermissionRule(Data, frozen=True, kw_only=True):
    """What happens when the agent asks for certain permissions. Of several that match, the last one counts."""

    permission: str = "*"
    """Kind of permission with `*` and `?` as wildcards, e.g. `bash`, `edit`, `external_directory`."""
    pattern: str = "*"
    """What it is for, likewise, e.g. `git push *` or a path."""
    action: Literal["allow", "ask", "deny"]
    """Allow it, ask people, or refuse it."""


class SessionPolicy(Data, frozen=True, kw_only=True):
    """How a session treats what its agent asks."""

    question_timeout_s: float = 3600.0
    """Seconds a question waits before its default is given."""
    permissions: Literal["auto-approve", "ask"] = "auto-approve"
    """What happens when the agent asks for a permission that no rule is about."""
    permission_rules: list[PermissionRule] = []
    """Exceptions from `permissions`."""
    permission_timeout_s: float = 3600.0
    """Seconds a permission waits before its default is given."""
    permission_default: Literal["reject", "once"] = "reject"
    """What a permission gets when nobody answers in time."""


class Attachment(Data, frozen=True, kw_only=True):
    """A file that came with a prompt; its content is in the object store."""

    attachment_id: str
    """Its id within the session; the object is `sessions/<session>/attachments/<attachment_id>`."""
    name: str
    """File name as it was given."""
    mime: str
    """Media type, e.g. `image/png`."""
    bytes: int
    """Size."""
    sha256: str
    """Of the content, hexadecimal."""


class Sender(Data, frozen=True, kw_only=True):
    """The session whose agent wrote a prompt, where no person did."""

    session_id: str
    """The session."""
    title: str = ""
    """Its title at the time."""
    turn_id: str | None = None
    """The turn in which the agent wrote it, where it was one."""
    hops: int = 0
    """How many prompts of agents there are since a person last said something, this one included."""


class SessionRequested(Data, frozen=True, kw_only=True):
    """A person, or another session's agent, asked for a session. The first event of every session."""

    owner: str
    """User id."""
    title: str = ""
    """The person's title; empty until the agent gives one."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    policy: SessionPolicy = SessionPolicy()
    """How its questions and permissions are treated."""
    idempotency_key: str | None = None
    """The client's `Idempotency-Key`, where it sent one."""
    parent: str | None = None
    """The session whose agent asked for it; its owner is this one's."""
    ancestors: list[str] = []
    """Every session above it, its parent first; empty where a person asked."""
    orchestrator: bool = False
    """Whether its agent directs others: it reaches every session of its owner, and does not end its own."""


class SandboxRequested(Data, frozen=True, kw_only=True):
    """The session needs a sandbox; the sandbox controller acts on this."""

    epoch: int
    """The epoch its runner will have; one higher than every earlier one."""
    reason: SandboxReason
    """What made it necessary: a new session, a prompt for a sleeping one, or a loss."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    boot_deadline_ms: int
    """When a runner must have attached, else the attempt has failed."""


class SandboxReleaseRequested(Data, frozen=True, kw_only=True):
    """The sandbox is no longer needed; the sandbox controller ends it and removes its workspace if told to."""

    epoch: int
    """The epoch of the sandbox to end; newer ones are left alone."""
    reason: Literal["terminated", "failed"]
    """Whether the session was ended or has failed."""
    delete_workspace: bool = False
    """Whether its files are to go as well."""


class RunnerAttached(Data, frozen=True, kw_only=True):
    """The runner of an epoch took the session over. Events of older epochs no longer count."""

    epoch: int
    """The epoch that holds the session from here on."""
    runner_version: str
    """Version of the runner's package."""
    opencode_version: str | None = None
    """Version of OpenCode, where it is known already."""


class PromptAccepted(Data, frozen=True, kw_only=True):
    """A prompt was accepted; from here on it is never lost."""

    prompt_id: str
    """The prompt's id, made by whoever submitted it."""
    content: str
    """The prompt's text; of a `command` its name and arguments (`/init now`), of a `shell` the command line."""
    kind: PromptKind = "prompt"
    """A prompt for the model, a slash command, a person's shell command, or a review of the session's changes."""
    mode: PromptMode = "queue"
    """Whether it waits its turn, steers the running one, or is collected with others."""
    author: str
    """User id."""
    channel: str = "web:default"
    """Where the prompt came from, `<surface>:<name>`."""
    model: str
    """Model of its turn as `provider/model`."""
    fallbacks: list[str] = []
    """Models to go on with, in order, when the one before cannot answer."""
    variant: str | None = None
    """Reasoning variant of the model, e.g. `high`; none for its default."""
    attachments: list[Attachment] = []
    """Files for the agent."""
    author_name: str = ""
    """The author's name for git commits of its turn; empty for the sandbox's own."""
    author_email: str = ""
    """The author's address for git commits of its turn."""
    answers: str | None = None
    """Id of the question this prompt answers, when its turn had ended before the answer came."""
    sender: Sender | None = None
    """The session whose agent wrote it, on behalf of `author`; none for a person's."""
    idempotency_key: str | None = None
    """The client's `Idempotency-Key`, where it sent one."""


class PromptEdited(Data, frozen=True, kw_only=True):
    """A prompt that waits was given another text."""

    prompt_id: str
    """The prompt's id."""
    content: str
    """The text that counts now."""
    by: str
    """User id."""


class PromptWithdrawn(Data, frozen=True, kw_only=True):
    """A prompt that waited was taken back; it never becomes a turn."""

    prompt_id: str
    """The prompt's id."""
    by: str
    """User id."""


class QueueReordered(Data, frozen=True, kw_only=True):
    """The prompts that wait were put into another order."""

    prompt_ids: list[str]
    """In the order in which they are to be dispatched; those not named keep their order behind them."""
    by: str
    """User id."""


class TurnDispatched(Data, frozen=True, kw_only=True):
    """A prompt's turn has come; the runner acts on this."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    prompt_id: str
    """The prompt's id, made by whoever submitted it; the first one's, when several were collected."""
    prompt_ids: list[str] = []
    """All prompts of the turn when several were collected; empty when there is just the one."""
    kind: PromptKind = "prompt"
    """What the runner is to do with `content`."""
    content: str
    """The prompt's text; of several, all of them joined by blank lines."""
    model: str
    """Model as `provider/model`."""
    fallbacks: list[str] = []
    """Models to go on with, in order, when the one before cannot answer."""
    variant: str | None = None
    """Reasoning variant of the model; none for its default."""
    attachments: list[Attachment] = []
    """Files for the agent."""
    author: str
    """User id."""
    author_name: str = ""
    """The author's name for git commits of the turn; empty for the sandbox's own."""
    author_email: str = ""
    """The author's address for git commits of the turn."""
    channel: str = "web:default"
    """Where the prompt came from, `<surface>:<name>`; each channel is a conversation of its own."""
    steered: bool = False
    """Whether the prompt was meant for an earlier turn, which ended before its runner said whether it took it."""


class PromptSteered(Data, frozen=True, kw_only=True):
    """A prompt is to go into the running turn; the runner acts on this and says `prompt_taken`."""

    turn_id: str
    """The running turn."""
    prompt_id: str
    """The prompt's id."""
    content: str
    """The prompt's text."""
    attachments: list[Attachment] = []
    """Files for the agent."""
    author: str
    """User id."""


class TurnInterruptRequested(Data, frozen=True, kw_only=True):
    """The running turn is to stop; the runner acts on this."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    by: str
    """User id; empty when it was not a person."""
    reason: InterruptedBy = "person"
    """A person wants it, the agent has been silent for too long, or a steering prompt was not taken."""


class TurnInterrupted(Data, frozen=True, kw_only=True):
    """A turn ended without its runner saying so, because there is no such runner any more."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    reason: EndedBy
    """Why nobody else will end it."""
    detail: str
    """What happened and what can be done, for people."""


class QuestionAnswered(Data, frozen=True, kw_only=True):
    """A question or permission got its answer; the runner passes it to the agent."""

    question_id: str
    """OpenCode's id of the question or permission."""
    answers: list[list[str]]
    """For each question of the set, the labels chosen or the free text.

    For a permission: `once`, `always` or `reject`."""
    answered_by: AnswerSource
    """A person, the default at its deadline, or the session's policy."""
    user: str | None = None
    """User id, when a person answered."""


class SessionFailed(Data, frozen=True, kw_only=True):
    """The session cannot go on."""

    code: str
    """Stable word, e.g. `clone_failed`, `sandbox_failed`, `boot_timed_out`."""
    detail: str
    """What happened, in the failing program's own words where it has some, and what can be done."""


class SessionTerminated(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A person, a session above it, or its own agent ended the session."""

    by: str
    """User id; empty when its own agent did."""
    session: str | None = None
    """The session above it whose agent, or whose own end, ended it."""
    completed: Outcome | None = None
    """Where its own agent ended it: whether its task was done."""
    detail: str = ""
    """What the agent said of its work then, or why the session was ended."""


class SessionRenamed(Data, frozen=True, kw_only=True):
    """A person named the session; what the agent proposes no longer counts."""

    title: str
    """The title."""
    by: str
    """User id."""


class PolicyChanged(Data, frozen=True, kw_only=True):
    """How questions and permissions are treated from here on; the runner acts on this."""

    policy: SessionPolicy
    """The whole new policy."""
    by: str
    """User id."""


class ParticipantAdded(Data, frozen=True, kw_only=True):
    """Somebody may take part in the session, or has another role now."""

    user: str
    """User id."""
    role: Role
    """What they may do: viewers read, collaborators also prompt, answer and steer."""
    by: str
    """User id of who let them in; their own when they came by a link."""
    link_id: str | None = None
    """The share link they came by."""


class ParticipantRemoved(Data, frozen=True, kw_only=True):
    """Somebody may no longer take part in the session."""

    user: str
    """User id."""
    by: str
    """User id."""


class ShareLinkCreated(Data, frozen=True, kw_only=True):
    """Whoever has the link's token may join the session."""

    link_id: str
    """The link's id; the token itself is shown once and stored nowhere."""
    token_sha256: str
    """Of the token, hexadecimal."""
    role: Role
    """The role of those who come by it."""
    expires_ms: int | None = None
    """Until when it can be used, milliseconds since 1970; none for as long as it is not revoked."""
    by: str
    """User id."""


class ShareLinkRevoked(Data, frozen=True, kw_only=True):
    """The link is void, and who came by it may no longer take part."""

    link_id: str
    """The link's id."""
    by: str
    """User id."""


class CommandRequested(Data, frozen=True, kw_only=True):
    """Something is to be done in the sandbox between turns; the runner acts on this and says `command_completed`."""

    request_id: str
    """Made by whoever asked."""
    command: CommandName
    """What is to be done."""
    message_id: str | None = None
    """For `revert`: the message to go back to; it and all after it are taken back, files too."""
    turn_id: str | None = None
    """For `revert`: the turn whose prompt the message is, where it is a person's."""
    channel: str = "web:default"
    """The conversation it is about."""
    by: str
    """User id."""
    due_ms: int
    """When it has timed out, milliseconds since 1970."""


class CommandTimedOut(Data, frozen=True, kw_only=True):
    """A command got no result in time, or its session ended before."""

    request_id: str
    """The command's id."""
    detail: str
    """What was waited for, and what can be done."""


class SessionImported(Data, frozen=True, kw_only=True):
    """A session was made from another one's events: an import, or a fork. The first event of such a session."""

    owner: str
    """User id."""
    title: str = ""
    """Its title."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    policy: SessionPolicy = SessionPolicy()
    """How its questions and permissions are treated."""
    source_session: str
    """The session the events are of."""
    source_seq: int
    """Events of the source up to this sequence were taken over."""
    message_id: str | None = None
    """For a fork at a message: which."""
    forked: bool = False
    """Whether it is a fork within this installation, or an import."""
    work: WorkRef | None = None
    """The files and the agent's conversation to start from, where they were saved."""
    idempotency_key: str | None = None
    """The client's `Idempotency-Key`, where it sent one."""


class EventImported(Data, frozen=True, kw_only=True):
    """An event of the source of an import, kept as it was. It tells what happened there and decides nothing here."""

    type: str
    """Its type, e.g. `agent.message_completed`."""
    version: int
    """Version of its data's shape."""
    time: str
    """When it happened, RFC 3339."""
    source_seq: int
    """Its sequence in the source."""
    turn: str | None = None
    """The turn it belongs to, where one does."""
    epoch: int | None = None
    """The runner's epoch, on events of a runner."""
    data: dict[str, object]
    """What happened."""


class ImportCompleted(Data, frozen=True, kw_only=True):
    """All events of the source are here; the session takes prompts."""

    events: int
    """How many were taken over."""


class ChildRequested(Data, frozen=True, kw_only=True):
    """The session's agent wants another session made. All that makes it is here; the ledger carries it out."""

    child_id: str
    """The new session's id, derived from this one and the request."""
    request_id: str
    """Made once for each call of the agent's."""
    title: str = ""
    """The child's title; empty until its agent gives one."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    policy: SessionPolicy = SessionPolicy()
    """How its questions and permissions are treated."""
    orchestrator: bool = False
    """Whether its agent directs others."""
    notify: bool = False
    """Whether this session's agent gets a prompt when the child changes."""
    prompt_id: str
    """Id of its first prompt."""
    prompt: str
    """Text of its first prompt, with who sends it."""


class ChildChanged(Data, frozen=True, kw_only=True):
    """What became of a child. A turn that a lost sandbox ends is one of the changes; the loss itself is not."""

    child_id: str
    """The child's session id."""
    change: ChildChange
    """It was made; a turn of it is over; its agent completed it, or gave its task up; it failed; or it was ended."""
    child_seq: int = 0
    """Sequence of the child's event that this tells of; 0 for what happened before it had any."""
    turn_id: str | None = None
    """The child's turn, where it is about one."""
    title: str = ""
    """The child's title then."""
    detail: str = ""
    """The end of what its agent said, its summary, or what went wrong."""
    hops: int = 0
    """How many prompts of agents there are between a person and what the child did."""


class ParentTold(Data, frozen=True, kw_only=True):
    """The parent's log has what became of this session up to one of its events."""

    child_seq: int
    """Sequence of the event, of this session, that the parent was told of."""


class CompletionRequested(Data, frozen=True, kw_only=True):
    """The session's agent says that its work is over: the session ends when nothing is left to do in it. A prompt that
    comes before that takes this back."""

    request_id: str
    """Made once for each call of the agent's."""
    outcome: Outcome = "done"
    """Whether the task was done."""
    summary: str
    """What was done, for people and for the parent."""
