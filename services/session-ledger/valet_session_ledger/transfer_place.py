"""How far the import of a session has come, told by the session's own log. Pure.

Nothing else is kept anywhere: whoever goes on with an import, after a crash or in another process, reads this anew.
"""

from msgspec import Struct
from valet_protocol.codec import decode_data, decode_envelope
from valet_protocol.errors import BadEvent
from valet_protocol.events import facts

from valet_session_ledger.rows import EventRow

READ = (
    "fact.session_requested",
    "fact.session_imported",
    "fact.event_imported",
    "fact.import_completed",
    "fact.session_renamed",
    "fact.session_terminated",
    "fact.session_failed",
)
"""The types that matter here."""


class Place(Struct, kw_only=True):
    """How far an import has come."""

    begun: facts.SessionImported | None = None
    """What the session began with."""
    other: bool = False
    """The session was not made by an import."""
    completed: bool = False
    over: bool = False
    """It was ended, or has failed, before it was completed."""
    source_seq: int = 0
    """Sequence, in the source, of the last event taken over."""
    events: int = 0
    """How many were."""
    fact_seq: int = 0
    """Sequence of the session's last fact: what the next one follows."""
    epoch: int = 0
    """Of the source's runner at this point."""
    title: str = ""
    """What a person named the source last, after it was made."""
    turn: str | None = None
    """The source's turn that had not ended at this point."""
    lines: int | None = None
    """How many lines of the file have been seen; none when only the log has been read."""

    @property
    def exists(self) -> bool:
        """Whether there is such a session."""
        return self.begun is not None or self.other

    def take(self, data: facts.EventImported, seq: int) -> None:
        """An event was taken over."""
        self.source_seq, self.events, self.fact_seq = data.source_seq, self.events + 1, seq
        if data.type == "fact.turn_dispatched":
            self.turn = str(data.data.get("turn_id", ""))
        elif data.type in ("agent.turn_ended", "fact.turn_interrupted") and data.data.get("turn_id") == self.turn:
            self.turn = None


def place(place: Place, row: EventRow) -> None:
    """The next of the session's own events."""
    try:
        data = decode_data(decode_envelope(row.payload))
    except BadEvent:
        return
    match data:
        case facts.SessionImported():
            place.begun = data
        case facts.SessionRequested():
            place.other = True
        case facts.EventImported():
            place.take(data, row.seq)
            if data.type == "fact.runner_attached":
                place.epoch = int(str(data.data.get("epoch", 0)))
            elif data.type == "fact.session_renamed":
                place.title = str(data.data.get("title", ""))
        case facts.ImportCompleted():
            place.completed = True
        case facts.SessionTerminated() | facts.SessionFailed():
            place.over = True
        case _:
            pass
