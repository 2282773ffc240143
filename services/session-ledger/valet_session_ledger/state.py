"""What the ledger must know of a session to decide: small, frozen, folded from the log by `evolve`.

Contents that no decision needs (messages, parts, diffs) are in the read models only, so most events of a running turn
leave the state untouched.
"""

import hashlib
from typing import Literal

import msgspec
from valet_protocol.events.agent import Question
from valet_protocol.events.facts import PromptMode, SessionPolicy
from valet_protocol.requests import SessionStatus

Phase = Literal[
    "requested", "provisioning", "booting", "ready", "lost", "hibernated", "restoring", "failed", "terminated"
]
"""A session's status without regard to turns: `busy` is `ready` with a turn."""

BOOTING: frozenset[Phase] = frozenset(("requested", "provisioning", "booting", "restoring"))
"""A sandbox is on its way; a runner may attach."""

ENDED: frozenset[Phase] = frozenset(("failed", "terminated"))
"""The session takes nothing any more."""


class QueuedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted prompt that waits for its turn."""

    prompt_id: str
    content: str
    model: str
    author: str
    channel: str
    mode: PromptMode


class ActiveTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The one turn a session can have at a time."""

    turn_id: str
    prompt_id: str
    started_epoch: int | None = None
    """Epoch of the runner that began it; none while no runner has."""
    interrupt_due_ms: int | None = None
    """When it is over whether its runner says so or not; none unless somebody asked for its end."""
    interrupt_seq: int = 0
    """Sequence of the fact that asked for its end."""
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


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a prompt was accepted, for recognising it when it comes again."""

    prompt_id: str
    digest: str
    """`prompt_digest` of what was accepted."""
    seq: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """That a question was answered, for recognising the same answer when it comes again."""

    question_id: str
    answers: tuple[tuple[str, ...], ...]
    user: str | None
    """None when it was the default or the policy."""
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
    """As requested; what the agent proposes counts only when this is empty."""
    title: str
    policy: SessionPolicy
    created_ms: int

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

    queue: tuple[QueuedPrompt, ...] = ()
    turn: ActiveTurn | None = None
    last_turn: str | None = None
    turns: int = 0
    questions: tuple[OpenQuestion, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """The latest `limits.RECEIPTS`, oldest first."""
    answers: tuple[Answer, ...] = ()
    """The latest `limits.ANSWERS`, oldest first."""

    @property
    def status(self) -> SessionStatus:
        """The status as people see it."""
        return "busy" if self.phase == "ready" and self.turn is not None else self.phase


def prompt_digest(content: str, mode: str, model: str, channel: str) -> str:
    """Equal for equal prompts: tells a repetition from another prompt under the same key."""
    return hashlib.sha256("\x1f".join((mode, model, channel, content)).encode()).hexdigest()[:32]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SessionState)


def pack(state: SessionState) -> bytes:
    """The snapshot of a state: the same bytes for the same state."""
    return _encoder.encode(state)


def unpack(snapshot: bytes) -> SessionState:
    """The inverse of `pack`. Fields added later take their defaults."""
    return _decoder.decode(snapshot)
