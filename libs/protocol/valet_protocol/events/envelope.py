"""The CloudEvents 1.0 envelope around every event of the log."""

import msgspec


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CloudEvent in structured JSON with its data left undecoded.

    A reader that only routes never looks into `data`. The position in the log is not part of the event: it is
    the JetStream sequence, given when the event is stored.
    """

    specversion: str
    """Always `1.0`."""
    id: str
    """ULID, made where the event happened; also its `Nats-Msg-Id`, so that a retry is dropped by the broker."""
    source: str
    """URI reference of the writer, e.g. `/session-ledger` or `/sandboxes/01J…`."""
    type: str
    """Short type `<source>.<event>`, e.g. `agent.turn_ended`."""
    subject: str
    """The session's id."""
    time: str
    """When it happened, RFC 3339 in UTC with milliseconds."""
    dataversion: int
    """Version of `data`'s shape; older versions are upcast when read."""
    turn: str | None = None
    """The turn it belongs to, where one does."""
    epoch: int | None = None
    """The runner's epoch, on events of a runner: those of an older epoch than the attached one do not count."""
    data: msgspec.Raw
    """What happened; its shape is given by `type` and `dataversion`."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded event as it is folded: the data struct with what the envelope says."""

    id: str
    """The envelope's `id`."""
    type: str
    """The envelope's `type`."""
    session_id: str
    """The envelope's `subject`."""
    time_ms: int
    """Milliseconds since 1970."""
    turn: str | None = None
    """The turn it belongs to, where one does."""
    epoch: int | None = None
    """The runner's epoch, on events of a runner."""
    data: "Data"
    """What happened."""
    seq: int = 0
    """JetStream sequence; 0 while not yet stored."""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every event's data."""


class Unknown(Data, frozen=True, kw_only=True):
    """Data of a type this version does not know: passed on, never an error."""

    raw: msgspec.Raw
    """The data as it is stored."""
