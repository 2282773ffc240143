"""Who is to be told what of an event. Pure.

`fold` keeps the little that must be known of a session for that, `notify` says what an event means to whom.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from valet_protocol.events.agent import (
    PromptTaken,
    QuestionAsked,
    QuestionResolved,
    SessionTitled,
    TurnEnded,
    TurnStatus,
)
from valet_protocol.events.envelope import Event
from valet_protocol.events.facts import (
    ParticipantAdded,
    ParticipantRemoved,
    PromptAccepted,
    PromptWithdrawn,
    QuestionAnswered,
    Role,
    RunnerAttached,
    SessionFailed,
    SessionImported,
    SessionRenamed,
    SessionRequested,
    SessionTerminated,
    TurnDispatched,
    TurnInterrupted,
)
from valet_protocol.ids import derived_id
from valet_protocol.requests import NotificationKind
from valet_protocol.tools.notifications import NoteLevel

from valet_event_bus import limits

T = TypeVar("T")

FACTS = frozenset(
    f"fact.{name}"
    for name in (
        "session_requested",
        "session_imported",
        "session_renamed",
        "session_failed",
        "session_terminated",
        "participant_added",
        "participant_removed",
        "runner_attached",
        "prompt_accepted",
        "prompt_withdrawn",
        "turn_dispatched",
        "turn_interrupted",
        "question_answered",
    )
)
AGENT = frozenset(
    f"agent.{name}" for name in ("session_titled", "prompt_taken", "question_asked", "question_resolved", "turn_ended")
)
MATTERS = FACTS | AGENT
"""The types of event that are read here."""


_ENDED: Mapping[TurnStatus, NotificationKind] = {
    "completed": "turn_completed",
    "failed": "turn_failed",
    "interrupted": "turn_interrupted",
}

Known = Mapping[str, "Audience"]
"""What is known of some sessions."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has not ended."""

    authors: list[str]
    """Users whose prompts it works on."""
    text: str
    """The beginning of what it was asked."""


class Audience(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must be known of a session."""

    owner: str = ""
    title: str = ""
    titled: bool = False
    """Whether a person gave the title: the agent's no longer count."""
    roles: Mapping[str, Role] = {}
    """Who takes part besides the owner."""
    child: bool = False
    """Whether an agent asked for it: its parent hears of its turns, not its owner."""
    epoch: int = 0
    """Of the runner that has the session; what older ones say does not count."""
    prompts: Mapping[str, str] = {}
    """Prompts that no turn has taken → their authors; none for what another session's agent wrote."""
    turns: Mapping[str, Turn] = {}
    """Turns that have not ended."""

    @property
    def acting(self) -> list[str]:
        """Who may prompt and answer."""
        return [self.owner, *(user for user, role in self.roles.items() if role != "viewer" and user != self.owner)]


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One user is to be told of one event, or of what an agent says."""

    id: str
    user: str
    kind: NotificationKind
    session_id: str
    title: str
    text: str
    turn_id: str | None = None
    question_id: str | None = None
    level: NoteLevel | None = None
    seq: int
    """0 where it is no event."""
    time_ms: int


class QuestionSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A question needs no answer any more: what told people of it counts as read."""

    session_id: str
    question_id: str


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """What came of some events."""

    audiences: Mapping[str, Audience]
    """Those that changed, by session."""
    outcomes: Sequence[Notification | QuestionSettled]
    """In the order of the log."""


def digest(
    events: Iterable[Event],
    known: Known,
    attentive: Callable[[str], frozenset[str]],
    silent_until: int,
) -> Digest:
    """Fold events in order. `attentive` names the users who look at a session at this moment; of what is not above
    `silent_until` nobody is told."""
    audiences = dict(known)
    outcomes: list[Notification | QuestionSettled] = []
    for event in events:
        audience = audiences.get(event.session_id, Audience())
        if is_stale(audience, event):
            continue
        if event.seq > silent_until:
            outcomes += notify(event, audience, attentive(event.session_id))
        match event.data:
            case QuestionAnswered(question_id=question_id) | QuestionResolved(question_id=question_id):
                outcomes.append(QuestionSettled(session_id=event.session_id, question_id=question_id))
            case _:
                audiences[event.session_id] = fold(audience, event)
    changed = {name: one for name, one in audiences.items() if known.get(name) != one}
    return Digest(audiences=changed, outcomes=outcomes)


def is_stale(audience: Audience, event: Event) -> bool:
    """Whether an event is of a runner that was replaced."""
    return event.type in AGENT and event.epoch is not None and event.epoch < audience.epoch


def fold(audience: Audience, event: Event) -> Audience:
    """What is known of the session after an event."""
    match event.data:
        case SessionRequested(owner=owner, title=title) | SessionImported(owner=owner, title=title):
            child = isinstance(event.data, SessionRequested) and event.data.parent is not None
            return _replace(audience, owner=owner, title=_line(title), titled=bool(title), child=child)
        case SessionRenamed(title=title):
            return _replace(audience, title=_line(title), titled=True)
        case SessionTitled(title=title) if not audience.titled:
            return _replace(audience, title=_line(title))
        case ParticipantAdded(user=user, role=role):
            return _replace(audience, roles={**audience.roles, user: role})
        case ParticipantRemoved(user=user):
            return _replace(audience, roles=_without(audience.roles, [user]))
        case RunnerAttached(epoch=epoch):
            return _replace(audience, epoch=epoch)
        case PromptAccepted(prompt_id=prompt_id, author=author, sender=sender):
            return _replace(audience, prompts={**audience.prompts, prompt_id: author if sender is None else ""})
        case PromptWithdrawn(prompt_id=prompt_id):
            return _replace(audience, prompts=_without(audience.prompts, [prompt_id]))
        case TurnDispatched() as dispatched:
            return _dispatched(audience, dispatched)
        case PromptTaken(outcome="delivered", turn_id=turn_id, prompt_id=prompt_id) if turn_id in audience.turns:
            turn = audience.turns[turn_id]
            authors = [*turn.authors, *_authors(audience, [prompt_id])]
            turns = {**audience.turns, turn_id: Turn(authors=list(dict.fromkeys(authors)), text=turn.text)}
            return _replace(audience, turns=turns, prompts=_without(audience.prompts, [prompt_id]))
        case TurnEnded(turn_id=turn_id) | TurnInterrupted(turn_id=turn_id):
            return _replace(audience, turns=_without(audience.turns, [turn_id]))
        case SessionFailed() | SessionTerminated():
            return _replace(audience, prompts={})
        case _:
            return audience


def notify(event: Event, audience: Audience, attentive: frozenset[str] = frozenset()) -> list[Notification]:
    """Who is to be told of an event, given what was known before it. Those who look at the session at this moment are
    not told that a turn ended."""
    told: Iterable[str]
    turn_id = question_id = None
    kind: NotificationKind
    match event.data:
        case QuestionAsked() as asked:
            kind = "question_asked" if asked.kind == "question" else "permission_asked"
            told, question_id = audience.acting, asked.question_id
            text = asked.questions[0].question if asked.questions else " ".join(asked.patterns)
        case TurnEnded() as ended if ended.turn_id in audience.turns:
            turn = audience.turns[ended.turn_id]
            kind = _ENDED[ended.status]
            told, turn_id = _waiting_for(audience, turn, attentive), ended.turn_id
            text = ended.error.message if ended.error else turn.text
        case TurnInterrupted() as ended if ended.turn_id in audience.turns:
            kind = "turn_interrupted"
            told = _waiting_for(audience, audience.turns[ended.turn_id], attentive)
            text, turn_id = ended.detail, ended.turn_id
        case SessionFailed(detail=detail):
            kind, told, text = "session_failed", audience.acting, detail
        case ParticipantAdded(user=user, role=role, by=by) if user not in (by, audience.owner):
            kind, told, text = "participant_added", [user], f"You take part as {role}."
        case _:
            return []
    return [
        Notification(
            id=derived_id("notification", event.id, user),
            user=user,
            kind=kind,
            session_id=event.session_id,
            title=audience.title,
            text=_line(text),
            turn_id=turn_id,
            question_id=question_id,
            seq=event.seq,
            time_ms=event.time_ms,
        )
        for user in told
        if user
    ]


def _waiting_for(audience: Audience, turn: Turn, attentive: frozenset[str]) -> list[str]:
    """Whose prompts a turn worked on, and the owner; those who take part and do not look."""
    users = dict.fromkeys(turn.authors if audience.child else [*turn.authors, audience.owner])
    return [user for user in users if (user == audience.owner or user in audience.roles) and user not in attentive]


def _dispatched(audience: Audience, turn: TurnDispatched) -> Audience:
    prompts = turn.prompt_ids or [turn.prompt_id]
    first = [] if turn.prompt_id in audience.prompts else [turn.author]
    authors = list(dict.fromkeys([*first, *_authors(audience, prompts)]))
    turns = {**audience.turns, turn.turn_id: Turn(authors=authors, text=_line(turn.content))}
    return _replace(audience, turns=turns, prompts=_without(audience.prompts, prompts))


def _authors(audience: Audience, prompts: Iterable[str]) -> list[str]:
    return [audience.prompts[one] for one in prompts if audience.prompts.get(one)]


def _without(mapping: Mapping[str, T], keys: Sequence[str]) -> dict[str, T]:
    return {key: value for key, value in mapping.items() if key not in keys}


def _replace(audience: Audience, **changes: object) -> Audience:
    return msgspec.structs.replace(audience, **changes)


def _line(text: str) -> str:
    """A text as a notification has it: short, and without the one character PostgreSQL does not store."""
    text = text.replace("\0", "")
    return text if len(text) <= limits.NOTIFICATION_TEXT else text[: limits.NOTIFICATION_TEXT - 1] + "…"
