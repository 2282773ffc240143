"""Which events of a session another one takes over, and in what form. Pure.

They are kept as they were inside `fact.event_imported`: they tell the conversation and decide nothing. A fork of a fork
unwraps what was taken over before, so nothing is ever wrapped twice.
"""

import msgspec
from valet_protocol.codec import decode_data, decode_envelope, rfc3339
from valet_protocol.errors import BadEvent
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Envelope, Event
from valet_protocol.ids import derived_id

_FACTS = frozenset(
    (
        "fact.prompt_accepted",
        "fact.prompt_edited",
        "fact.prompt_withdrawn",
        "fact.turn_dispatched",
        "fact.prompt_steered",
        "fact.turn_interrupted",
        "fact.question_answered",
    )
)
"""Facts that tell the conversation."""

_BOOKMARKS = frozenset(("fact.runner_attached", "fact.session_renamed"))
"""What `transfer_place` reads from an import's own log."""

_SANDBOX_TALK = frozenset(
    (
        "agent.runner_ready",
        "agent.boot_failed",
        "agent.status_changed",
        "agent.opencode_restarted",
        "agent.command_completed",
        "agent.boot_step_completed",
        "agent.service_changed",
        "agent.process_created",
        "agent.process_updated",
        "agent.process_exited",
        "agent.process_deleted",
        "agent.tunnels_changed",
    )
)
"""What runners say of their sandbox rather than of the conversation."""

_OF_THE_PRESENT_TURN = (
    facts.TurnInterrupted,
    agent.TurnStarted,
    agent.TurnEnded,
    agent.PromptTaken,
    agent.ModelSwitched,
)
"""What says nothing unless it is about the present turn."""

_object = msgspec.json.Decoder(dict[str, object])


class Told(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of the source, unwrapped where the source had taken it over itself."""

    seq: int
    """In the source."""
    type: str
    version: int
    time: str
    turn: str | None
    epoch: int | None
    data: Data
    raw: msgspec.Raw
    """`data` as it is stored."""
    taken_over: bool
    """Whether the source had it from another session."""


def told(seq: int, session_id: str, kind: str, payload: bytes) -> Told | None:
    """An archived event; None for one that cannot be believed or decoded (as `intake` has it)."""
    try:
        envelope = decode_envelope(payload)
        if envelope.type != kind or envelope.subject != session_id:
            return None
        return unwrap(seq, envelope)
    except BadEvent:
        return None


def unwrap(seq: int, envelope: Envelope) -> Told:
    """The event of an envelope, or the one inside it. Raises `BadEvent`."""
    data = decode_data(envelope)
    if not isinstance(data, facts.EventImported):
        return _told(seq, envelope, data, taken_over=False)
    inner = Envelope(
        specversion=envelope.specversion,
        id=envelope.id,
        source=envelope.source,
        type=data.type,
        subject=envelope.subject,
        time=data.time,
        dataversion=data.version,
        turn=data.turn,
        epoch=data.epoch,
        data=msgspec.Raw(msgspec.json.encode(data.data)),
    )
    if inner.type == envelope.type:
        raise BadEvent("an imported event cannot hold another imported event")
    return _told(seq, inner, decode_data(inner), taken_over=True)


def _told(seq: int, envelope: Envelope, data: Data, *, taken_over: bool) -> Told:
    return Told(
        seq=seq,
        type=envelope.type,
        version=envelope.dataversion,
        time=envelope.time,
        turn=envelope.turn,
        epoch=envelope.epoch,
        data=data,
        raw=envelope.data,
        taken_over=taken_over,
    )


class Selection:
    """Goes through a session's events in order and says which are taken over.

    Events of a runner that did not hold the session never counted there, nor what it said of a turn that was not, or no
    longer, the present one: they are left behind.
    """

    def __init__(self, *, epoch: int = 0, turn: str | None = None, bookmarks: bool = False) -> None:
        self._epoch = epoch
        """Of the runner that holds the session at this point."""
        self._turn = turn
        """The present turn at this point."""
        self._bookmarks = bookmarks
        """Whether to take over as well what an import must know again when it goes on after a crash."""

    def takes(self, event: Told) -> bool:
        """Whether an event is taken over. Every event of the session must be shown, in order."""
        taken = self._counts(event) and self._is_of_the_present(event)
        if isinstance(event.data, facts.TurnDispatched):
            self._turn = event.data.turn_id
        elif taken and isinstance(event.data, facts.TurnInterrupted | agent.TurnEnded):
            self._turn = None
        return taken

    def _is_of_the_present(self, event: Told) -> bool:
        return not isinstance(event.data, _OF_THE_PRESENT_TURN) or event.data.turn_id == self._turn

    def _counts(self, event: Told) -> bool:
        if not event.type.startswith("agent."):
            if isinstance(event.data, facts.RunnerAttached) and not event.taken_over:
                self._epoch = event.data.epoch
            return event.type in _FACTS or (self._bookmarks and event.type in _BOOKMARKS)
        if not event.taken_over and (not event.epoch or event.epoch != self._epoch):
            return False
        return event.type not in _SANDBOX_TALK


def believed_work(event: Told, session_id: str) -> agent.WorkRef | None:
    """The saved work an event tells of, if it is the session's own.

    A runner is not believed when it names another session's object: a fork would copy it. What was taken over has been
    looked at when that was done.
    """
    if not isinstance(event.data, agent.WorkSaved):
        return None
    own = event.taken_over or event.data.work.object.startswith(f"sessions/{session_id}/saved/")
    return event.data.work if own else None


def prompts_with_a_turn(event: Told) -> tuple[str, ...]:
    """The prompts that an event gives a turn, or makes part of one."""
    data = event.data
    if isinstance(data, facts.TurnDispatched):
        return (data.prompt_id, *data.prompt_ids)
    if isinstance(data, agent.PromptTaken) and data.outcome == "delivered":
        return (data.prompt_id,)
    return ()


def prompt_of(event: Told) -> str | None:
    """The prompt an event is about, while it waits for its turn."""
    data = event.data
    waits = isinstance(data, facts.PromptAccepted | facts.PromptEdited | facts.PromptWithdrawn)
    return data.prompt_id if waits else None


def imported(event: Told) -> facts.EventImported:
    """The fact that takes an event over."""
    return facts.EventImported(
        type=event.type,
        version=event.version,
        time=event.time,
        source_seq=event.seq,
        turn=event.turn,
        epoch=event.epoch,
        data=_object.decode(event.raw),
    )


def cut_off(turn_id: str, source_seq: int, now_ms: int) -> facts.EventImported:
    """The end of a turn whose own end is not in the file: nobody else will end it here."""
    data = facts.TurnInterrupted(turn_id=turn_id, reason="runner_lost", detail="The export ends before this turn did.")
    return facts.EventImported(
        type="fact.turn_interrupted",
        version=1,
        time=rfc3339(now_ms),
        source_seq=source_seq + 1,
        turn=turn_id,
        data=msgspec.to_builtins(data),
    )


def stamped(session_id: str, data: Data, kind: str, now_ms: int) -> Event:
    """A fact of a transfer, with an id made of what it takes over: made twice it is the same event."""
    cause = data.source_seq if isinstance(data, facts.EventImported) else ""
    return Event(id=derived_id(session_id, kind, cause), type=kind, session_id=session_id, time_ms=now_ms, data=data)
