"""Claims about the wire forms, without any I/O."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from valet_event_bus.errors import BadHandOver
from valet_event_bus.frames import PONG_WS, Batch, Line, archived_line, line, split, text_frame
from valet_event_bus.hand_over import Unpacker
from valet_event_bus.testing import some_event
from valet_protocol.codec import decode, encode, new_event, rfc3339
from valet_protocol.errors import BadEvent
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import HandOver
from websockets.frames import Frame
from websockets.protocol import OPEN, Protocol, Side


def websocket_texts(data: bytes) -> list[bytes]:
    """What a WebSocket client makes of the bytes."""
    client = Protocol(Side.CLIENT, state=OPEN)
    client.receive_data(data)
    return [bytes(frame.data) for frame in client.events_received() if isinstance(frame, Frame)]


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 500))
def test_parts_keep_everything_in_order_and_within_the_limit(sizes: list[int], most: int) -> None:
    lines = [Line(n, "a.b", b"x" * size) for n, size in enumerate(sizes)]
    parts = list(split(lines, most))
    assert [one for part in parts for one in part] == lines
    assert all(len(part) == 1 or sum(len(one.payload) for one in part) <= most for part in parts)


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_text_frames_of_every_length_are_read_by_a_client(size: int) -> None:
    assert websocket_texts(text_frame(b"x" * size)) == [b"x" * size]


def test_pong_is_a_whole_frame() -> None:
    assert websocket_texts(PONG_WS) == [b'{"type":"pong"}']


def test_websocket_events_carry_the_sequence_first() -> None:
    outgoing = some_event("S", 1)
    batch = Batch("S", [line(7, outgoing.subject, outgoing.payload), line(9, outgoing.subject, outgoing.payload)])
    (text,) = websocket_texts(batch.ws)
    message = msgspec.json.decode(text)
    assert (message["type"], message["session_id"]) == ("events", "S")
    assert [next(iter(event.items())) for event in message["events"]] == [("seq", 7), ("seq", 9)]


def test_a_line_break_in_a_stored_event_cannot_forge_a_frame() -> None:
    outgoing = some_event("S", 1)
    forged = outgoing.payload.replace(b'{"specversion"', b'{\n\nid: 1\r\n"specversion"', 1)
    with pytest.raises(BadEvent):
        line(1, outgoing.subject, forged)
    spaced = line(1, outgoing.subject, outgoing.payload.replace(b",", b",\n", 3))
    assert b"\n" not in spaced.payload
    assert Batch("S", [spaced]).sse.count(b"\n") == 4


def _of_the_ledger(data: Data) -> tuple[str, bytes]:
    outgoing = encode(new_event(data, id="E", session_id="S", now_ms=0), source="/session-ledger")
    return outgoing.subject, outgoing.payload


def test_nobody_who_follows_a_session_is_shown_what_opens_a_share_link() -> None:
    link = facts.ShareLinkCreated(link_id="l", token_sha256="5ec4e7", role="viewer", expires_ms=7, by="ada")
    wrapped = facts.EventImported(
        type="fact.share_link_created", version=1, time=rfc3339(0), source_seq=3, data=msgspec.to_builtins(link)
    )
    for data in (link, wrapped):
        subject, payload = _of_the_ledger(data)
        live, archived = line(7, subject, payload), archived_line(7, payload)
        assert live == archived
        assert (live.seq, b"5ec4e7" in payload, b"5ec4e7" in live.payload) == (7, True, False)
        shown = decode(live.payload).data
        said = msgspec.to_builtins(shown if data is link else shown.data)  # type: ignore[attr-defined]
        assert {key: said[key] for key in ("link_id", "token_sha256", "role", "expires_ms", "by")} == {
            "link_id": "l", "token_sha256": "", "role": "viewer", "expires_ms": 7, "by": "ada"
        }  # fmt: skip


@given(st.text(max_size=20))
def test_whatever_else_happens_is_passed_on_byte_for_byte(text: str) -> None:
    revoked = facts.ShareLinkRevoked(link_id=text, by="token_sha256")
    wrapped = facts.EventImported(
        type="fact.share_link_revoked", version=1, time=rfc3339(0), source_seq=3, data=msgspec.to_builtins(revoked)
    )
    for data in (revoked, wrapped):
        subject, payload = _of_the_ledger(data)
        assert line(7, subject, payload).payload == archived_line(7, payload).payload == payload


def test_a_hand_over_in_pieces_is_put_together() -> None:
    payload = msgspec.json.encode(HandOver(kind="ws", user="U", ws_key="k"))
    data = len(payload).to_bytes(4, "big") + payload
    unpacker = Unpacker()
    assert unpacker.feed(data[:3], [50]) == []
    assert unpacker.feed(data[3:-1], []) == []
    ((message, descriptor),) = unpacker.feed(data[-1:], [])
    assert (message.user, descriptor) == ("U", 50)


def test_a_hand_over_without_a_connection_is_refused() -> None:
    payload = msgspec.json.encode(HandOver(kind="ws", user="U", ws_key="k"))
    with pytest.raises(BadHandOver):
        Unpacker().feed(len(payload).to_bytes(4, "big") + payload, [])
