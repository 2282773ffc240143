"""Events to bytes and back. Decoding has two steps: the envelope, then — for those who need it — its data."""

from datetime import UTC, datetime

import msgspec

from valet_protocol import subjects
from valet_protocol.catalogue import BY_TYPE, type_of
from valet_protocol.errors import BadEvent
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data, Envelope, Event, Unknown
from valet_protocol.upcasts import UPCASTS

_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(Envelope)
_object = msgspec.json.Decoder(dict[str, object])
_data = {line.type: msgspec.json.Decoder(line.data) for line in BY_TYPE.values()}


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """An event ready to be stored: where, what, and the id by which the broker drops a second copy."""

    subject: str
    payload: bytes
    msg_id: str


def rfc3339(time_ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-02T03:04:05.678Z`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def from_rfc3339(text: str) -> int:
    """The inverse of `rfc3339`; any RFC 3339 time with an offset is taken. Raises `BadEvent`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadEvent(f"{text!r} is not an RFC 3339 time") from error
    if time.tzinfo is None:  # would be read as this machine's local time
        raise BadEvent(f"{text!r} has no offset from UTC")
    return round(time.timestamp() * 1000)


def encode(event: Event, *, source: str) -> Outgoing:
    """An event as it is stored. `source` is the writer's URI reference, e.g. `/session-ledger`."""
    if isinstance(event.data, Delta):
        subject = subjects.delta(event.session_id, event.type.partition(".")[2], event.data.message_id)
        version = 1
    else:
        line = type_of(event.data)
        subject = subjects.event(event.session_id, line.source, line.name)
        version = line.version
    envelope = Envelope(
        specversion="1.0",
        id=event.id,
        source=source,
        type=event.type,
        subject=event.session_id,
        time=rfc3339(event.time_ms),
        dataversion=version,
        turn=event.turn,
        epoch=event.epoch,
        data=msgspec.Raw(_encoder.encode(event.data)),
    )
    return Outgoing(subject=subject, payload=_encoder.encode(envelope), msg_id=event.id)


def decode_envelope(payload: bytes) -> Envelope:
    """Step one. Raises `BadEvent`."""
    try:
        return _envelope.decode(payload)
    except msgspec.MsgspecError as error:
        raise BadEvent(f"not an event: {error}") from error


def decode_data(envelope: Envelope) -> Data:
    """Step two: the struct for the envelope's type, upcast from an older version where needed.

    A type or a newer version that this program does not know gives `Unknown`. Raises `BadEvent` when the data
    does not fit its type.
    """
    line = BY_TYPE.get(envelope.type)
    if line is None or envelope.dataversion > line.version:
        return Unknown(raw=envelope.data)
    try:
        if envelope.dataversion == line.version:
            return _data[envelope.type].decode(envelope.data)
        old = _object.decode(envelope.data)
        for version in range(envelope.dataversion, line.version):
            old = UPCASTS[envelope.type, version](old)
        return msgspec.convert(old, line.data)
    except (msgspec.MsgspecError, KeyError) as error:
        raise BadEvent(f"{envelope.type} {envelope.id}: {error}") from error


def decode(payload: bytes, seq: int = 0) -> Event:
    """Both steps: a stored message as an `Event` with its sequence. Raises `BadEvent`."""
    envelope = decode_envelope(payload)
    return Event(
        id=envelope.id,
        type=envelope.type,
        session_id=envelope.subject,
        time_ms=from_rfc3339(envelope.time),
        turn=envelope.turn,
        epoch=envelope.epoch,
        data=decode_data(envelope),
        seq=seq,
    )


def new_event(
    data: Data, *, id: str, session_id: str, now_ms: int, turn: str | None = None, epoch: int | None = None
) -> Event:
    """An event of a type with its own struct (every one but a delta)."""
    return Event(
        id=id,
        type=type_of(data).type,
        session_id=session_id,
        time_ms=now_ms,
        turn=turn,
        epoch=epoch,
        data=data,
    )


def with_seq(payload: bytes, seq: int) -> bytes:
    """The event's JSON with its sequence as first member, without decoding it: the form clients get in lines
    and WebSocket messages."""
    return b'{"seq":%d,' % seq + payload[1:]
