"""What arrives from the log: decoded, and believed only as far as its subject goes. Pure.

The broker's permissions say who may publish on a subject; what the envelope says of itself proves nothing. A runner
could put a `fact.…` envelope, or another session's id, on its own subject: such an event is archived, not folded.
"""

import msgspec
from valet_protocol.codec import decode_data, decode_envelope, from_rfc3339
from valet_protocol.errors import BadEvent
from valet_protocol.events.envelope import Event


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """One event of the log on its way into the fold."""

    seq: int
    shard: int
    session_id: str
    type: str
    """As its subject says."""
    payload: bytes
    event: Event | None
    """None for what cannot be believed or decoded."""
    problem: str = ""
    """Why there is no event."""


def is_folded(subject: str) -> bool:
    """Whether a message of the log is folded and archived: everything but deltas, which go when their message is
    complete."""
    return subject.split(".", 4)[3] != "delta"


def arrive(seq: int, subject: str, payload: bytes) -> Arrived:
    """Decode one stored message of the session log."""
    tokens = subject.split(".", 4)
    session_id, kind = tokens[2], f"{tokens[3]}.{tokens[4]}"
    return from_archive(seq, session_id, kind, payload, shard=int(tokens[1]))


def from_archive(seq: int, session_id: str, kind: str, payload: bytes, shard: int = 0) -> Arrived:
    """Decode one archived event."""
    try:
        envelope = decode_envelope(payload)
        if envelope.type != kind or envelope.subject != session_id:
            raise BadEvent(f"calls itself {envelope.type} of {envelope.subject}")
        event = Event(
            id=envelope.id,
            type=kind,
            session_id=session_id,
            time_ms=from_rfc3339(envelope.time),
            turn=envelope.turn,
            epoch=envelope.epoch,
            data=decode_data(envelope),
            seq=seq,
        )
    except BadEvent as error:
        return Arrived(seq, shard, session_id, kind, payload, None, str(error))
    return Arrived(seq, shard, session_id, kind, payload, event)
