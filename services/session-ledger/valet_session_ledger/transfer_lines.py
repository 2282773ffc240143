"""The lines of an import: events as an export writes them, believed only after they have been looked at. Pure.

Whoever sends a file decides what is in it. So nothing of it acts here: it is checked, wrapped and shown.
"""

from collections.abc import Sequence

import msgspec
from valet_protocol.catalogue import BY_TYPE
from valet_protocol.codec import from_rfc3339
from valet_protocol.errors import BadEvent, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Envelope, Unknown

from valet_session_ledger import limits
from valet_session_ledger.transfer_events import Told, unwrap

Beginning = facts.SessionRequested | facts.SessionImported
"""The first event of every session."""


class _Line(Envelope, frozen=True, kw_only=True):
    seq: int


_line = msgspec.json.Decoder(_Line)


def refused(line: int, why: str) -> Unprocessable:
    """What a sender hears; `line` counts from 1."""
    return Unprocessable("bad_import", f"The import is refused at line {line}: {why}")


def read(lines: Sequence[msgspec.Raw], *, offset: int, source_session: str, after: int) -> list[Told]:
    """The events of a page whose first line is number `offset + 1`; those up to sequence `after` came before.

    Types that this version does not know are left out. Raises `Unprocessable` naming the line.
    """
    if len(lines) > limits.IMPORT_PAGE:
        raise Unprocessable("bad_import", f"A page has {len(lines)} events; send at most {limits.IMPORT_PAGE} at once.")
    events: list[Told] = []
    last = 0
    for number, raw in enumerate(lines, start=offset + 1):
        line = _decoded(number, raw, source_session)
        if line.seq <= last:
            raise refused(number, f"its seq {line.seq} is not above {last}, that of the line before.")
        last = line.seq
        if number == 1:
            _first(number, line)
        if line.seq <= after or line.type.startswith("delta."):
            continue
        if number > limits.IMPORT_EVENTS:
            raise refused(number, f"an import has at most {limits.IMPORT_EVENTS} events.")
        event = _event(number, line)
        if event is not None:
            events.append(event)
    return events


def beginning(event: Told | None) -> Beginning:
    """What the first line says of the session. Raises `Unprocessable`."""
    if event is None or not isinstance(event.data, Beginning):
        raise refused(1, "an export begins with the session's first event, fact.session_requested.")
    return event.data


def _decoded(number: int, raw: msgspec.Raw, source_session: str) -> _Line:
    if len(raw) > limits.IMPORT_EVENT_BYTES:
        raise refused(number, f"it has {len(raw)} bytes; an event has at most {limits.IMPORT_EVENT_BYTES}.")
    try:
        line = _line.decode(raw)
    except msgspec.MsgspecError as error:
        raise refused(number, f"it is not an event of an export: {error}.") from error
    if line.specversion != "1.0":
        raise refused(number, f"it is a CloudEvent of version {line.specversion}; only 1.0 is known.")
    if line.subject != source_session:
        raise refused(number, f"it is an event of {line.subject}, the ones before are of {source_session}.")
    return line


def _first(number: int, line: _Line) -> None:
    if line.type not in ("fact.session_requested", "fact.session_imported"):
        raise refused(number, "an export begins with the session's first event, fact.session_requested.")


def _event(number: int, line: _Line) -> Told | None:
    known = BY_TYPE.get(line.type)
    if known is None:
        return None
    try:
        event = unwrap(line.seq, line)
        from_rfc3339(event.time)
    except BadEvent as error:
        raise refused(number, f"{error}.") from error
    inner = BY_TYPE.get(event.type)
    if inner is None:
        return None
    if isinstance(event.data, Unknown):
        raise refused(
            number,
            f"it is {event.type} of version {event.version}, and this installation knows versions up to"
            f" {inner.version}; update it.",
        )
    return event
