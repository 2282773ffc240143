"""One step of folding: an arrived event into a session and a batch. Live ledger and rebuild share it."""

from valet_protocol.events.envelope import Event
from valet_service import logs

from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.intake import Arrived
from valet_session_ledger.projection import project
from valet_session_ledger.rows import Batch, EventRow, Touched
from valet_session_ledger.sessions import Live

_log = logs.get(__name__)


def fold(live: Live, arrived: Arrived, batch: Batch) -> bool:
    """Fold one event. True when the session's state changed, so that there may be something to react to.

    An event that the session's snapshot holds already is passed over: whoever wrote the snapshot has projected it.
    What cannot be folded is archived and logged, never more: one event must not stop all sessions.
    """
    seq = arrived.seq
    if seq <= live.last_seq:
        return False
    batch.events.append(EventRow(seq, arrived.session_id, arrived.type, arrived.payload))
    live.last_seq = seq
    if arrived.event is None:
        _log.warning("event_not_folded", seq=seq, type=arrived.type, problem=arrived.problem)
        return False
    try:
        changed = _fold(live, arrived.event, batch)
    except Exception as error:  # noqa: BLE001 - a fault of ours with one event; the log line is how we hear of it
        _log.exception("event_not_folded", seq=seq, type=arrived.type, problem=repr(error))
        return False
    if live.state is not None:
        old = batch.touched.get(live.session_id)
        batch.touched[live.session_id] = Touched(
            live.state, seq, arrived.event.time_ms, live.state_seq, changed or (old is not None and old.changed)
        )
    return changed


def _fold(live: Live, event: Event, batch: Batch) -> bool:
    before = live.state
    if not counts(before, event):
        return False
    after = evolve(before, event)
    if after is None:
        return False
    project(batch, before or after, after, event)
    if after is before:
        return False
    live.state, live.state_seq = after, event.seq
    return True
