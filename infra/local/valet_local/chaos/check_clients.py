"""Clients: each got every event once and in order, and its pieces of text add up. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from valet_local.chaos.records import ClientRecord, History, Received, Stored, Violation


def is_delta(event: Received | Stored) -> bool:
    """Whether it is a piece of a text: purged from the log once the text is stored whole."""
    return event.type.startswith("delta.")


def each_event_once_and_in_order(history: History) -> Iterator[Violation]:
    """No client got an event twice, or after a later one."""
    for client in history.clients:
        last = 0
        seen: set[str] = set()
        for event in client.received:
            if event.id in seen:
                yield _of("no client gets an event twice", client, event.seq, f"{event.type} {event.id} came again")
            elif event.seq <= last:
                yield _of("every client gets events in order", client, event.seq, f"{event.type} came after {last}")
            seen.add(event.id)
            last = max(last, event.seq)


def every_event(history: History) -> Iterator[Violation]:
    """From its first event to the end of the session each client has what the log has: no event less, none more.

    Deltas count as far as the log still has them.
    """
    by_session: dict[str, list[Stored]] = defaultdict(list)
    for event in history.stream:
        by_session[event.session_id].append(event)
    for client in history.clients:
        expected = {event.seq: event for event in by_session[client.session_id]}
        got = {event.seq: event for event in client.received}
        for seq in sorted(expected.keys() - got.keys()):
            yield _of("no client misses an event", client, seq, f"{expected[seq].type} {expected[seq].id} never came")
        for seq in sorted(got.keys() - expected.keys()):
            if not is_delta(got[seq]):
                what = f"{got[seq].type} {got[seq].id} came, but the log has no such event"
                yield _of("no client gets what is not in the log", client, seq, what)
        for seq in sorted(got.keys() & expected.keys()):
            if (got[seq].id, got[seq].type) != (expected[seq].id, expected[seq].type):
                what = f"{got[seq].type} {got[seq].id} came; the log has {expected[seq].type} {expected[seq].id}"
                yield _of("no client gets what is not in the log", client, seq, what)


def texts_add_up(history: History) -> Iterator[Violation]:
    """The pieces of a completed text, joined by offset, are the text.

    A gap is fine only where the pieces were purged before this client could get them: that is, where it was cut in
    between, or where the raw log's own reader has no such piece either.
    """
    known: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for event in history.tapped:
        part, offset, chunk = event.data.get("part_id"), event.data.get("offset"), event.data.get("text")
        if isinstance(part, str) and isinstance(offset, int) and isinstance(chunk, str):
            known[(event.session_id, part)].append((offset, offset + len(chunk)))
    troubled = _troubled(history)
    for client in history.clients:
        yield from _texts_of(client, known, troubled)


def _texts_of(
    client: ClientRecord, known: dict[tuple[str, str], list[tuple[int, int]]], troubled: list[tuple[float, float]]
) -> Iterator[Violation]:
    pieces: dict[str, list[Received]] = defaultdict(list)
    for event in client.received:
        if is_delta(event):
            pieces[event.part].append(event)
        elif event.type == "agent.text_completed" and event.text and event.part in pieces:
            yield from _one_text(client, pieces.pop(event.part), event, known, troubled)


def _one_text(
    client: ClientRecord,
    pieces: list[Received],
    whole: Received,
    known: dict[tuple[str, str], list[tuple[int, int]]],
    troubled: list[tuple[float, float]],
) -> Iterator[Violation]:
    """The pieces in the order they came, against the text they are of."""
    text = whole.text
    # the agent trims a text when it completes it
    shift = 0 if text[:1].isspace() else _leading(pieces)
    end = 0
    before = pieces[0]
    for piece in [*pieces, whole]:
        start = len(text) + shift if piece is whole else piece.offset
        if start > end:
            missing = _existed(known[(client.session_id, whole.part)], end, start)
            excused = piece.connection != before.connection or any(
                began <= piece.at and before.at <= ended for began, ended in troubled
            )
            if missing and not excused:
                what = f"of {whole.part} the characters {end} to {start} never came, and the client was not cut"
                yield _of("streamed text has no gap", client, piece.seq, what)
        if piece is not whole:
            at = piece.offset - shift
            if at >= 0 and text[at : at + len(piece.text)].strip() != piece.text[: max(0, len(text) - at)].strip():
                what = f"{whole.part} at {piece.offset}: streamed {piece.text!r}, stored {text[at : at + 40]!r}"
                yield _of("streamed text is the stored text", client, piece.seq, what)
            end = max(end, piece.offset + len(piece.text))
        before = piece


def _leading(pieces: list[Received]) -> int:
    """How much white space the stream began with."""
    first = min(pieces, key=lambda piece: piece.offset)
    return len(first.text) - len(first.text.lstrip()) if first.offset == 0 else 0


def _existed(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether the raw log had any piece within these characters."""
    return any(began < end and start < ended for began, ended in spans)


def _troubled(history: History) -> list[tuple[float, float]]:
    """When the event bus could not read the log in time to get every piece before it was purged."""
    spans: list[tuple[float, float]] = []
    for fault in history.faults:
        if fault.target in ("nats", "event-bus", "nats:event-bus", "front", "client"):
            spans.append((fault.began, fault.ended + (fault.recovered or 0.0) + 1.0))
    return spans


def _of(rule: str, client: ClientRecord, seq: int, what: str) -> Violation:
    return Violation(rule=rule, session_id=client.session_id, seq=seq, what=f"client {client.name}: {what}")
