"""Events as clients get them: SSE frames and WebSocket messages. Pure.

The bytes of a batch are built once, when the first client of that kind needs them, and shared by all.
"""

from collections.abc import Iterator, Sequence

import msgspec
from valet_protocol.codec import decode_envelope, with_seq
from valet_protocol.errors import BadEvent, Problem

from valet_event_bus import limits
from valet_event_bus.redact import for_clients

KEEP_ALIVE = b": keep-alive\n\n"


class Line(msgspec.Struct, frozen=True, gc=False):
    """One event on its way to clients."""

    seq: int
    type: str
    """Short type, e.g. `agent.turn_ended`."""
    payload: bytes
    """The envelope's JSON, in one line."""


def line(seq: int, subject: str, payload: bytes) -> Line:
    """A stored message as a line. Its type is what the subject says, because that is what writers are held to.

    Raises `BadEvent` for what is not an event: a client must never get a frame that breaks its stream.
    """
    tokens = subject.split(".", 5)
    if len(tokens) < 5:
        raise BadEvent(f"{subject!r} is not a subject of the session log")
    decode_envelope(payload)
    kind = f"{tokens[3]}.{tokens[4]}"
    return Line(seq, kind, _one_line(for_clients(kind, payload)))


def archived_line(seq: int, payload: bytes) -> Line:
    """An archived event as a line. Raises `BadEvent`."""
    kind = decode_envelope(payload).type
    return Line(seq, kind, _one_line(for_clients(kind, payload)))


def _one_line(payload: bytes) -> bytes:
    if b"\n" in payload or b"\r" in payload:  # between tokens, or it would not have decoded
        payload = payload.replace(b"\n", b" ").replace(b"\r", b" ")
    return payload.strip()


class Batch:
    """Events of one session, in order, in whatever form a client takes them."""

    __slots__ = ("_sse", "_ws", "lines", "session_id")

    def __init__(self, session_id: str, lines: Sequence[Line]) -> None:
        self.session_id = session_id
        self.lines = lines
        self._sse: bytes | None = None
        self._ws: bytes | None = None

    @property
    def sse(self) -> bytes:
        """SSE frames, joined."""
        if self._sse is None:
            self._sse = b"".join(
                [b"id: %d\nevent: %s\ndata: %s\n\n" % (one.seq, one.type.encode(), one.payload) for one in self.lines]
            )
        return self._sse

    @property
    def ws(self) -> bytes:
        """WebSocket text frames, as few as the size limit allows."""
        if self._ws is None:
            head = b'{"type":"events","session_id":"%s","events":[' % self.session_id.encode()
            self._ws = b"".join(
                [
                    text_frame(head + b",".join([with_seq(one.payload, one.seq) for one in part]) + b"]}")
                    for part in split(self.lines, limits.WS_MESSAGE_OUT)
                ]
            )
        return self._ws


def split(lines: Sequence[Line], most: int) -> Iterator[Sequence[Line]]:
    """Consecutive parts of at most `most` payload bytes, each of at least one line."""
    start = size = 0
    for index, one in enumerate(lines):
        if index > start and size + len(one.payload) > most:
            yield lines[start:index]
            start, size = index, 0
        size += len(one.payload)
    if start < len(lines):
        yield lines[start:]


def synced_sse(seq: int) -> bytes:
    """The mark between history and live. It has no id, so it does not move a client's cursor."""
    return b'event: synced\ndata: {"seq":%d}\n\n' % seq


def synced_ws(session_id: str, seq: int) -> bytes:
    """The same for one subscription of a WebSocket."""
    return text_frame(b'{"type":"synced","session_id":"%s","seq":%d}' % (session_id.encode(), seq))


def error_ws(session_id: str | None, problem: Problem) -> bytes:
    """What was wrong with a client's message."""
    return text_frame(msgspec.json.encode({"type": "error", "session_id": session_id, "problem": problem}))


def presence_ws(session_id: str, people: Sequence[msgspec.Struct]) -> bytes:
    """Who watches a session."""
    return text_frame(msgspec.json.encode({"type": "presence", "session_id": session_id, "users": people}))


PONG_WS = b'\x81\x0f{"type":"pong"}'
"""The answer to a client's `{"type":"ping"}`."""


def text_frame(payload: bytes) -> bytes:
    """An unfragmented WebSocket text frame from a server (RFC 6455, 5.2): not masked."""
    size = len(payload)
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big") + payload
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload
