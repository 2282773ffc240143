"""Rows of the read models, and a batch of them on its way to PostgreSQL. Pure.

A row's fields are its table's columns, in the order of the parameters of its statement in `queries.sql`. None means
"not said by these events": the stored value stays.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import astuple, replace

from valet_session_ledger.state import SessionState


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every row."""

    session_id: str
    first_seq: int
    """Sequence of the event that began it."""
    seq: int
    """Sequence of the last event in it; an older row never replaces a newer one."""


class TurnRow(Row, frozen=True, kw_only=True, gc=False):
    turn_id: str
    prompt_id: str | None = None
    kind: str | None = None
    channel: str | None = None
    model: str | None = None
    """The first one that has it; see `SwitchRow`."""
    status: str
    error: str | None = None
    """JSON."""
    cost: float | None = None
    tokens: str | None = None
    """JSON."""
    started_ms: int | None = None
    ended_ms: int | None = None
    first_token_ms: int | None = None
    duration_ms: int | None = None


class SwitchRow(Row, frozen=True, kw_only=True, gc=False):
    """A turn went on with another model."""

    turn_id: str
    from_model: str
    to_model: str
    error: str
    """JSON."""


class MessageRow(Row, frozen=True, kw_only=True, gc=False):
    """A person's message without text or author has those of the prompt whose id it has."""

    message_id: str
    turn_id: str | None = None
    role: str
    author: str | None = None
    text: str | None = None
    finish: str | None = None
    model: str | None = None
    cost: float | None = None
    tokens: str | None = None
    error: str | None = None
    parent_session: str | None = None
    complete: bool
    created_ms: int
    place: int | None = None
    """Among the messages that one event began, where it began several."""


class PartRow(Row, frozen=True, kw_only=True, gc=False):
    message_id: str
    part_id: str
    kind: str
    text: str | None = None
    tool: str | None = None
    call_id: str | None = None
    status: str | None = None
    input: str | None = None
    """JSON."""
    output: str | None = None
    title: str | None = None
    error: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    conversation: str | None = None
    """Of a call that started a sub-agent."""


class TurnPartRow(Row, frozen=True, kw_only=True, gc=False):
    """A picture, or what the agent said in a channel by itself."""

    kind: str
    """`image` or `channel_reply`."""
    part_id: str
    turn_id: str | None
    message_id: str | None
    """Outside of a turn: the message of its own."""
    data: str
    """JSON of its event."""


class MachineRow(Row, frozen=True, kw_only=True, gc=False):
    """Something in a session's sandbox, as its runner said last."""

    kind: str
    """`tunnels`, `process`, `service` or `boot_step`."""
    name: str
    epoch: int
    """Of the sandbox."""
    status: str
    """Of a process also `deleted`."""
    data: str | None
    """JSON, by the kind."""


class PromptRow(Row, frozen=True, kw_only=True, gc=False):
    prompt_id: str
    content: str | None = None
    author: str | None = None
    kind: str | None = None
    mode: str | None = None
    channel: str | None = None
    model: str | None = None
    attachments: str | None = None
    """JSON."""
    digest: str | None = None
    status: str
    """queued, steering, dispatched, withdrawn or dropped; done is a turn that is over."""
    turn_id: str | None = None
    accepted_ms: int | None = None
    sender: str | None = None
    """JSON."""


class QuestionRow(Row, frozen=True, kw_only=True, gc=False):
    question_id: str
    kind: str | None = None
    status: str
    """open, answered or dropped."""
    questions: str | None = None
    due_ms: int | None = None
    answers: str | None = None
    answered_by: str | None = None
    answered_user: str | None = None
    turn_id: str | None = None


class DiffRow(Row, frozen=True, kw_only=True, gc=False):
    base_commit: str | None
    head_commit: str | None
    branch: str | None
    files: str
    patch: str
    truncated: bool


class TurnDiffRow(Row, frozen=True, kw_only=True, gc=False):
    """What one turn changed."""

    turn_id: str
    files: str
    patch: str
    truncated: bool


class ReviewRow(Row, frozen=True, kw_only=True, gc=False):
    turn_id: str
    summary: str
    findings: str
    """JSON."""


class RevertRow(Row, frozen=True, kw_only=True, gc=False):
    """A conversation was taken back to before a message, or, without one, what was taken back counts again."""

    channel: str
    message_id: str | None


class CommandRow(Row, frozen=True, kw_only=True, gc=False):
    request_id: str
    command: str | None = None
    digest: str | None = None
    status: str
    """requested, completed, failed or timed_out."""
    result: str | None = None
    """JSON."""
    error: str | None = None
    due_ms: int | None = None


class ParticipantRow(Row, frozen=True, kw_only=True, gc=False):
    """Somebody besides the owner who takes part, or did."""

    user_id: str
    role: str
    link_id: str | None
    present: bool


class LinkRow(Row, frozen=True, kw_only=True, gc=False):
    link_id: str
    role: str | None = None
    expires_ms: int | None = None
    created_by: str | None = None
    revoked: bool


class TodoRow(Row, frozen=True, kw_only=True, gc=False):
    items: str


class UsageRow(Row, frozen=True, kw_only=True, gc=False):
    message_id: str
    turn_id: str | None
    model: str | None
    cost: float
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    at_ms: int


class SessionRow(Row, frozen=True, kw_only=True, gc=False):
    owner: str
    title: str
    repo: str | None
    branch: str | None
    model: str
    status: str
    status_detail: str
    epoch: int
    turns: int
    active_turn: str | None
    last_turn: str | None
    policy: str
    """JSON."""
    source_session: str | None
    work: str | None
    """JSON."""
    created_ms: int
    updated_ms: int
    next_due_ms: int | None
    at_rest: bool
    parent: str | None
    root: str | None
    ancestors: str | None
    """JSON; none for none."""
    children: int
    orchestrator: bool
    completed: str | None


class StateRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A snapshot."""

    session_id: str
    seq: int
    """Sequence of the last event that changed the state."""
    state: bytes


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """An event of the archive, byte for byte."""

    seq: int
    session_id: str
    type: str
    payload: bytes


class Touched(msgspec.Struct, frozen=True, gc=False):
    """Where a session stands after a batch."""

    state: SessionState
    seq: int
    updated_ms: int
    state_seq: int
    """Sequence of the last event that changed the state."""
    changed: bool
    """Whether that was in this batch."""


R = TypeVar("R", bound=Row)
Key = tuple[str | int, ...]

TABLES = (
    "turns",
    "switches",
    "messages",
    "parts",
    "prompts",
    "questions",
    "diffs",
    "turn_diffs",
    "todos",
    "usage",
    "reviews",
    "reverts",
    "commands",
    "participants",
    "links",
    "turn_parts",
    "machine",
)
"""What a batch has rows for, besides sessions, their states and events."""


class Batch:
    """Everything some consecutive events say to the read models, coalesced by key: written in one transaction."""

    def __init__(self) -> None:
        self.turns: dict[Key, TurnRow] = {}
        self.switches: dict[Key, SwitchRow] = {}
        self.messages: dict[Key, MessageRow] = {}
        self.parts: dict[Key, PartRow] = {}
        self.prompts: dict[Key, PromptRow] = {}
        self.questions: dict[Key, QuestionRow] = {}
        self.diffs: dict[Key, DiffRow] = {}
        self.turn_diffs: dict[Key, TurnDiffRow] = {}
        self.todos: dict[Key, TodoRow] = {}
        self.usage: dict[Key, UsageRow] = {}
        self.reviews: dict[Key, ReviewRow] = {}
        self.reverts: dict[Key, RevertRow] = {}
        self.commands: dict[Key, CommandRow] = {}
        self.participants: dict[Key, ParticipantRow] = {}
        self.links: dict[Key, LinkRow] = {}
        self.turn_parts: dict[Key, TurnPartRow] = {}
        self.machine: dict[Key, MachineRow] = {}
        self.touched: dict[str, Touched] = {}
        self.events: list[EventRow] = []
        self.last_seq = 0

    def rows(self, table: str) -> dict[Key, Row]:
        """The rows for one of `TABLES`."""
        return getattr(self, table)

    def merge(self, table: dict[Key, R], key: Key, row: R) -> None:
        """Put a newer row over what the batch has for its key; what it does not say stays."""
        old = table.get(key)
        if old is None:
            table[key] = row
            return
        said = {name: value for name in row.__struct_fields__ if (value := getattr(row, name)) is not None}
        said["first_seq"] = old.first_seq
        table[key] = replace(old, **said)

    def put(self, table: dict[Key, R], key: Key, row: R) -> None:
        """Put a newer row in the place of what the batch has for its key."""
        old = table.get(key)
        table[key] = row if old is None else replace(row, first_seq=old.first_seq)

    def sessions(self) -> list[str]:
        """The sessions the batch is about."""
        return list({row.session_id for row in self.events})

    def only(self, session_id: str) -> "Batch":
        """The part of the batch that is about one session."""
        part = Batch()
        part.last_seq = self.last_seq
        for table in TABLES:
            part.rows(table).update((key, row) for key, row in self.rows(table).items() if row.session_id == session_id)
        if session_id in self.touched:
            part.touched[session_id] = self.touched[session_id]
        part.events = [row for row in self.events if row.session_id == session_id]
        return part


def columns(rows: Iterable[msgspec.Struct]) -> list[tuple[object, ...]]:
    """Rows as one array for each column, as `unnest` takes them."""
    return list(zip(*map(astuple, rows), strict=True))
