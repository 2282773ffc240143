"""Events that an imported session took over from its source, as rows. Pure.

They become the messages, turns and prompts they were; questions, commands and participants were the source's own.
"""

import msgspec
from valet_protocol.codec import decode_data, from_rfc3339
from valet_protocol.errors import BadEvent
from valet_protocol.events import facts
from valet_protocol.events.envelope import Envelope, Event

from valet_session_ledger import projection_conversation, projection_shown, projection_turns
from valet_session_ledger.projection_turns import Projections, prompt_row
from valet_session_ledger.rows import Batch
from valet_session_ledger.state import SessionState

_NEVER_HERE = (facts.PromptAccepted, facts.PromptEdited, facts.PromptSteered)


def project_imported(batch: Batch, state: SessionState, event: Event) -> None:
    """Add what the event inside `fact.event_imported` says. One that cannot be understood says nothing."""
    inner = _unwrap(event)
    projection = None if inner is None else _PROJECTIONS.get(type(inner.data))
    if inner is None or projection is None:
        return
    projection(batch, state, inner, inner.data)
    if isinstance(inner.data, _NEVER_HERE):
        # unless it had a turn there, which later events tell, it is not for this session to carry out
        prompt_row(batch, inner, inner.data.prompt_id, status="dropped")


def _unwrap(event: Event) -> Event | None:
    data = event.data
    if not isinstance(data, facts.EventImported):
        return None
    envelope = Envelope(
        specversion="1.0",
        id=event.id,
        source="",
        type=data.type,
        subject=event.session_id,
        time=data.time,
        dataversion=data.version,
        data=msgspec.Raw(msgspec.json.encode(data.data)),
    )
    try:
        return Event(
            id=event.id,
            type=data.type,
            session_id=event.session_id,
            time_ms=from_rfc3339(data.time),
            turn=data.turn,
            epoch=data.epoch,
            data=decode_data(envelope),
            seq=event.seq,
        )
    except BadEvent:
        return None


_PROJECTIONS: Projections = {
    **projection_turns.ANYWHERE,
    **projection_conversation.PROJECTIONS,
    **projection_shown.PROJECTIONS,
}
