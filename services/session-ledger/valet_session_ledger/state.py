"""What the ledger must know of a session to decide: small, frozen, folded from the log by `evolve`.

Contents that no decision needs (messages, parts, diffs) are in the read models only, so most events of a running turn
leave the state untouched.
"""

from typing import Literal

import msgspec
from valet_protocol.events.agent import Question, WorkRef
from valet_protocol.events.facts import (
    Attachment,
    ChildChange,
    ChildRequested,
    CommandName,
    InterruptedBy,
    Outcome,
    PromptKind,
    PromptMode,
    Role,
    Sender,
    SessionPolicy,
)
from valet_protocol.requests import SessionStatus

Phase = Literal[
    "requested", "provisioning", "booting", "ready", "lost", "hibernated", "restoring", "failed", "terminated"
]
"""A session's status without regard to turns: `busy` is `ready` with a turn."""

BOOTING: frozenset[Phase] = frozenset(("requested", "provisioning", "booting", "restoring"))
"""A sandbox is on its way; a runner may attach."""

ENDED: frozenset[Phase] = frozenset(("failed", "terminated"))
"""The session takes nothing any more."""


DEFAULT_CHANNEL = "web:default"
"""The conversation of whoever names none."""


class QueuedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted prompt that has no turn yet."""

    prompt_id: str
    content: str
    model: str
    author: str
    channel: str
    mode: PromptMode
    kind: PromptKind = "prompt"
    fallbacks: tuple[str, ...] = ()
    variant: str | None = None
    attachments: tuple[Attachment, ...] = ()
    author_name: str = ""
    author_email: str = ""
    answers: str | None = None
    """Question it answers, whose turn is gone."""
    sender: Sender | None = None
    """The session whose agent wrote it."""
    hops: int = 0
    """How many prompts of agents there are since a person last said something, this one included."""
    accepted_ms: int = 0
    steered: bool = False
    """It was handed to a turn that ended before its runner said whether it took it."""
    missed: str | None = None
    """Turn that had ended when it was to take it."""
    refused: str | None = None
    """Turn that could not take it while it worked; that turn is interrupted for it."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Whose turn it is and what it is done with."""

    author: str = ""
    author_name: str = ""
    author_email: str = ""
    channel: str = DEFAULT_CHANNEL
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    variant: str | None = None


class ActiveTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The one turn a session can have at a time."""

    turn_id: str
    prompt_id: str
    more: tuple[str, ...] = ()
    """Its further prompts: collected with the first, or steered into it."""
    steering: tuple[QueuedPrompt, ...] = ()
    """Prompts on their way into it: the runner has not said yet what became of them."""
    kind: PromptKind = "prompt"
    origin: Origin = Origin()
    started_epoch: int | None = None
    """Epoch of the runner that began it; none while no runner has."""
    since_ms: int = 0
    """By the ledger's clock: its dispatch, or what later gave its runner something to do. Silence counts from here."""
    behind_ms: int = 0
    """How far its runner's clock is behind the ledger's, at least."""
    interrupt_due_ms: int | None = None
    """When it is over whether its runner says so or not; none unless somebody asked for its end."""
    interrupt_seq: int = 0
    """Sequence of the fact that asked for its end."""
    interrupt_reason: InterruptedBy = "person"
    losses: int = 0
    """Sandboxes lost since it was dispatched and before it was started."""


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question or permission nobody has answered yet."""

    question_id: str
    kind: Literal["question", "permission"]
    questions: tuple[Question, ...]
    due_ms: int
    """When it gets its default."""
    turn_id: str | None
    asked_ms: int = 0
    permission: str = ""
    """For a permission: its kind."""
    patterns: tuple[str, ...] = ()
    """For a permission: what it is for."""
    parked: Origin | None = None
    """Of a question whose turn is gone with its runner: what the prompt made of its answer takes over."""


class LateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a parked question, which becomes a prompt."""

    question_id: str
    questions: tuple[Question, ...]
    answers: tuple[tuple[str, ...], ...]
    user: str | None
    """None when it was the default."""
    origin: Origin


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a prompt was accepted, for recognising it when it comes again."""

    prompt_id: str
    digest: str
    """`prompt_digest` of what was accepted."""
    seq: int
    withdrawn: int = 0
    """Sequence of the fact that took it back; 0 if none did."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """That a question was answered, for recognising the same answer when it comes again."""

    question_id: str
    answers: tuple[tuple[str, ...], ...]
    user: str | None
    """None when it was the default or the policy."""
    seq: int


class PendingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command the runner has not answered yet."""

    request_id: str
    command: CommandName
    due_ms: int


class CommandReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a command was requested, for recognising it when it comes again."""

    request_id: str
    digest: str
    """`command_digest` of what was requested."""
    seq: int


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody besides the owner who takes part."""

    user: str
    role: Role
    link_id: str | None
    """The share link they came by."""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whose part has ended with their share link, before the fact that names them is in the log."""

    user: str
    by: str
    """Who revoked the link."""


class ShareLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link by which people may join."""

    link_id: str
    token_sha256: str
    role: Role
    expires_ms: int | None


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A session that this one's agent asked for."""

    session_id: str
    status: Literal["requested", "going_on", "ended"]
    notify: bool
    """Whether this session's agent gets a prompt when it changes."""
    origin: Origin
    """Of the turn that asked for it: such prompts take it over."""
    digest: str
    """`child_digest` of what was asked."""
    hops: int = 0
    """Of its first prompt."""
    seq: int = 0
    """Sequence of the fact that asked for it."""
    heard_seq: int = 0
    """Sequence of the child's last event that this session knows of."""
    request: ChildRequested | None = None
    """What makes it, while it is not certain that it is made."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """Something of this session that its parent has not been told yet."""

    seq: int
    """Of the event."""
    change: ChildChange
    turn_id: str | None = None
    detail: str = ""
    hops: int = 0
    """Of what it did then."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A child's change that is to be a prompt."""

    prompt_id: str
    child_id: str
    change: ChildChange
    title: str
    detail: str
    hops: int = 0
    """Of that prompt."""


class Completing(msgspec.Struct, frozen=True, kw_only=True):
    """The session's agent has said that its work is over."""

    request_id: str
    outcome: Outcome
    summary: str
    seq: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the session cannot go on, before the fact that says so is in the log."""

    code: str
    detail: str


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one session after some event."""

    session_id: str
    owner: str
    repo: str | None
    branch: str | None
    model: str
    given_title: str
    """A person's; what the agent proposes counts only when this is empty."""
    title: str
    policy: SessionPolicy
    created_ms: int
    asked: str = ""
    """`session_digest` of the request that made it."""
    source_session: str | None = None
    """The session it was imported or forked from."""
    import_due_ms: int | None = None
    """When an import that is not complete has failed; none while there is no import under way."""

    phase: Phase = "requested"
    detail: str = ""
    """Why the phase is what it is, where people need to know."""
    fact_seq: int = 0
    """Sequence of the last fact: what an append expects to follow."""
    ended_seq: int = 0
    """Sequence of the fact that ended the session; 0 while it goes on."""

    requested_epoch: int = 0
    attached_epoch: int = 0
    ready_epoch: int = 0
    recoveries: int = 0
    """Sandboxes requested for recovery since a runner was last ready."""
    recover: bool = False
    """The sandbox was lost while it was needed."""
    boot_deadline_ms: int | None = None
    hold_until_ms: int | None = None
    """No sandbox is requested before this."""
    failure: Failure | None = None
    released: Literal["failed", "terminated"] | None = None
    """Whether the sandbox's release was requested, and how."""
    base_commit: str | None = None
    work: WorkRef | None = None
    """The latest saved work."""
    heard_ms: int = 0
    """By the runner's clock: about when it last said something in a turn; see `limits.HEARD_STEP_MS`."""

    queue: tuple[QueuedPrompt, ...] = ()
    """In the order in which they are dispatched."""
    turn: ActiveTurn | None = None
    last_turn: str | None = None
    turns: int = 0
    hops: int = 0
    """Of what its agent does in the present turn, or did in the last one: how many prompts of agents there are between
    a person and that."""
    questions: tuple[OpenQuestion, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """The latest `limits.RECEIPTS`, oldest first."""
    answers: tuple[Answer, ...] = ()
    """The latest `limits.ANSWERS`, oldest first."""
    late: tuple[LateAnswer, ...] = ()
    """Answers to parked questions that are not prompts yet."""
    commands: tuple[PendingCommand, ...] = ()
    """Requested and without a result, oldest first."""
    command_receipts: tuple[CommandReceipt, ...] = ()
    """The latest `limits.COMMAND_RECEIPTS`, oldest first."""
    participants: tuple[Participant, ...] = ()
    """Those besides the owner."""
    links: tuple[ShareLink, ...] = ()
    """Those not revoked."""
    revoked_links: tuple[str, ...] = ()
    """Ids of the latest `limits.SHARE_LINKS` revoked ones."""
    leaving: tuple[Leaving, ...] = ()
    """Whom their revoked link takes with it, not named by a fact yet."""

    ancestors: tuple[str, ...] = ()
    """Every session above it, its parent first; empty where a person asked for it."""
    orchestrator: bool = False
    news: tuple[News, ...] = ()
    """What its parent has not been told yet, oldest first."""
    completing: Completing | None = None
    completions: tuple[str, ...] = ()
    """The latest `limits.COMPLETIONS` requests to complete it, those taken back by a prompt too."""
    completed: Outcome | None = None
    """Whether its task was done, where its own agent ended it."""
    ended_by: str | None = None
    """The session above it that ended it."""
    spawned: int = 0
    """Sessions its agent has asked for."""
    children: tuple[Child, ...] = ()
    """Those that have not ended, and the latest `limits.ENDED_CHILDREN` others, oldest first."""
    notices: tuple[Notice, ...] = ()
    """Changes of children that are not prompts yet, at most one of each child."""

    @property
    def parent(self) -> str | None:
        """The session whose agent asked for it."""
        return self.ancestors[0] if self.ancestors else None

    @property
    def status(self) -> SessionStatus:
        """The status as people see it."""
        return "busy" if self.phase == "ready" and self.turn is not None else self.phase

    def role_of(self, user: str) -> Role | None:
        """What a user may do here; none for somebody who takes no part."""
        if user == self.owner:
            return "owner"
        return next((participant.role for participant in self.participants if participant.user == user), None)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SessionState)


def pack(state: SessionState) -> bytes:
    """The snapshot of a state: the same bytes for the same state."""
    return _encoder.encode(state)


def unpack(snapshot: bytes) -> SessionState:
    """The inverse of `pack`. Fields added later take their defaults."""
    return _decoder.decode(snapshot)
