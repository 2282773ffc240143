"""Pictures that the agent shows and what it says in channels by itself, as rows. Pure.

Their events name the turn, not the message: which one they stand in follows from the order of the log when it is read.
Outside of a turn each is a message of its own. Like the conversation, none of it depends on the session's state.
"""

from valet_protocol.events import machine
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger import values
from valet_session_ledger.projection_conversation import message_row
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import Batch, MessageRow, TurnPartRow
from valet_session_ledger.state import SessionState


def _image_shown(batch: Batch, before: SessionState, event: Event, data: machine.ImageShown) -> None:
    _part(batch, event, "image", data.image_id, data.turn_id, data)


def _channel_replied(batch: Batch, before: SessionState, event: Event, data: machine.ChannelReplied) -> None:
    _part(batch, event, "channel_reply", data.reply_id, data.turn_id, data)


def _part(batch: Batch, event: Event, kind: str, part_id: str, turn_id: str | None, data: Data) -> None:
    """What is told again of one id is the same; where it was told first is its place."""
    row = TurnPartRow(
        session_id=event.session_id,
        kind=kind,
        part_id=values.identifier(part_id),
        turn_id=None if turn_id is None else values.identifier(turn_id),
        message_id=values.identifier(part_id) if turn_id is None else None,
        data=values.json(data),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.turn_parts, (event.session_id, kind, row.part_id), row)
    if row.message_id is not None:
        _own_message(batch, event, row.message_id)


def _own_message(batch: Batch, event: Event, message_id: str) -> None:
    row = MessageRow(
        session_id=event.session_id,
        message_id=message_id,
        role="assistant",
        text="",
        complete=True,
        created_ms=event.time_ms,
        first_seq=event.seq,
        seq=event.seq,
    )
    message_row(batch, row)


PROJECTIONS: Projections = {
    machine.ImageShown: _image_shown,
    machine.ChannelReplied: _channel_replied,
}
