"""What a follower of a session gets, and the bookkeeping that makes it exactly once. Pure."""

import msgspec
from valet_protocol.codec import decode_data, decode_envelope, from_rfc3339
from valet_protocol.events.envelope import Data, Envelope

from valet_local.client.sse import Frame


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log, at its place."""

    seq: int
    """Position in the log: pass it as `after` to continue behind this event."""
    envelope: Envelope
    data: Data
    raw: bytes
    """The envelope's JSON as it came."""

    @property
    def time_ms(self) -> int:
        """When it happened, milliseconds since 1970."""
        return from_rfc3339(self.envelope.time)


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """History ends here; what follows is live."""

    seq: int


class _SyncedData(msgspec.Struct, frozen=True, kw_only=True):
    seq: int = 0


_synced = msgspec.json.Decoder(_SyncedData)


class Cursor:
    """Remembers the last event given out, so that no resumption doubles or drops one."""

    def __init__(self, after: int) -> None:
        self.seq = after
        self._synced = False

    def take(self, frame: Frame) -> Entry | Synced | None:
        """What a frame means to the follower; None for what it already has.

        Raises `BadEvent` (valet_protocol) or `msgspec.DecodeError` when it is not one of ours.
        """
        if frame.id is None:
            if frame.event != "synced" or self._synced:
                return None  # control frames of later versions, and the marker again after a resumption
            self._synced = True
            return Synced(seq=max(self.seq, _synced.decode(frame.data).seq))
        seq = int(frame.id)
        if seq <= self.seq:
            return None
        envelope = decode_envelope(frame.data)
        entry = Entry(seq=seq, envelope=envelope, data=decode_data(envelope), raw=frame.data)
        self.seq = seq
        return entry
