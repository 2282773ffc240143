"""One step of folding: an arrived event into a session and a batch. Pure; live ledger and rebuild share it."""

from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.intake import Arrived
from valet_session_ledger.projection import project
from valet_session_ledger.rows import Batch, EventRow, Touched
from valet_session_ledger.sessions import Live


def fold(live: Live, arrived: Arrived, batch: Batch) -> bool:
    """Fold one event. True when the session's state changed, so that there may be something to react to.

    An event that the session's snapshot holds already is passed over: whoever wrote the snapshot has projected it.
    """
    seq = arrived.seq
    if seq <= live.last_seq:
        return False
    batch.events.append(EventRow(seq, arrived.session_id, arrived.type, arrived.payload))
    live.last_seq = seq
    event, before = arrived.event, live.state
    if event is None:
        return False
    changed = False
    if counts(before, event):
        after = evolve(before, event)
        if after is None:
            return False
        project(batch, before or after, after, event)
        changed = after is not before
        if changed:
            live.state, live.state_seq = after, seq
    if live.state is not None:
        _touch(batch, live, event.time_ms, changed)
    return changed


def _touch(batch: Batch, live: Live, time_ms: int, changed: bool) -> None:
    assert live.state is not None
    old = batch.touched.get(live.session_id)
    batch.touched[live.session_id] = Touched(
        live.state, live.last_seq, time_ms, live.state_seq, changed or (old is not None and old.changed)
    )
