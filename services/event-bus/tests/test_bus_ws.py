"""Claims about many sessions over one WebSocket. The client is the `websockets` library; the ledger is a fake."""

import asyncio

import pytest
from valet_event_bus import limits
from valet_event_bus.testing import Bus, Socket, some_event, stored
from valet_protocol import subjects
from valet_protocol.ids import new_id
from valet_protocol.requests import GetSession
from valet_service.outbox import Outbox


async def test_many_sessions_over_one_socket_each_with_history_mark_and_live(
    bus: Bus, outbox: Outbox, ledger: list[str]
) -> None:
    first, second = new_id(), new_id()
    a = await stored(outbox, [some_event(first, n) for n in range(30)])
    b = await stored(outbox, [some_event(second, n) for n in range(30)])
    client = Socket(bus)
    await client.send({"type": "subscribe", "session_id": first, "after": a[9]})
    await client.send({"type": "subscribe", "session_id": second, "after": 0})
    seqs, _ = await client.events(50)
    assert seqs == {first: a[10:], second: b}
    a += await stored(outbox, [some_event(first, n) for n in range(5)])
    b += await stored(outbox, [some_event(second, n) for n in range(5)])
    seqs, _ = await client.events(10)
    assert seqs == {first: a[-5:], second: b[-5:]}
    assert sorted(ledger) == sorted([first, second])
    client.sock.close()


async def test_large_histories_come_in_messages_a_client_takes(bus: Bus, outbox: Outbox, ledger: list[str]) -> None:
    session = new_id()
    stored_seqs = await stored(outbox, [some_event(session, n, 20_000) for n in range(200)])
    client = Socket(bus)  # its library refuses messages above 1 MiB
    await client.send({"type": "subscribe", "session_id": session, "after": 0})
    seqs, _ = await client.events(200)
    assert seqs == {session: stored_seqs}
    client.sock.close()


async def test_a_session_of_somebody_else_is_an_error_frame_and_the_socket_stays(
    bus: Bus, outbox: Outbox, ledger: list[str]
) -> None:
    client = Socket(bus, user="somebody-else")
    session = new_id()
    await client.send({"type": "subscribe", "session_id": session, "after": 0})
    message = await client.receive()
    assert (message["type"], message["session_id"]) == ("error", session)
    assert (message["problem"]["status"], message["problem"]["code"]) == (404, "session_not_found")
    await client.send({"type": "ping"})
    assert await client.receive() == {"type": "pong"}
    client.sock.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"nonsense", "malformed_message"),
        (b'{"type":"fly"}', "malformed_message"),
        (b'{"type":"subscribe"}', "malformed_message"),
        (b'{"type":"subscribe","session_id":"S","after":-1}', "bad_cursor"),
        (b'{"type":"subscribe","session_id":"S","after":"x"}', "bad_cursor"),
        (b'{"type":"subscribe","session_id":"not an id"}', "session_not_found"),
        (b'{"type":"subscribe","session_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","after":99999999}', "bad_cursor"),
    ],
)
async def test_a_bad_message_is_answered_with_a_problem(bus: Bus, ledger: list[str], text: bytes, code: str) -> None:
    client = Socket(bus)
    await client.text(text)
    message = await client.receive()
    assert message["type"] == "error"
    assert message["problem"]["code"] == code
    client.sock.close()


@pytest.mark.parametrize("size", [limits.WS_MESSAGE_IN + 1, 4 << 20])
async def test_a_message_that_is_too_large_ends_the_connection_with_the_limit(
    bus: Bus, ledger: list[str], size: int
) -> None:
    client = Socket(bus)
    await client.send({"type": "ping"})
    assert await client.receive() == {"type": "pong"}
    await client.text(b" " * size)
    loop = asyncio.get_running_loop()
    received = b""
    async with asyncio.timeout(10):
        while data := await loop.sock_recv(client.sock, 1000):
            received += data
    assert received[:1] == b"\x88"
    assert received[2:] == (1009).to_bytes(2, "big") + b"a message may have 65,536 bytes"
    client.sock.close()


async def test_after_unsubscribe_nothing_more_comes(bus: Bus, outbox: Outbox, ledger: list[str]) -> None:
    quiet, loud = new_id(), new_id()
    client = Socket(bus)
    for session in (quiet, loud):
        await client.send({"type": "subscribe", "session_id": session, "after": 0})
        assert (await client.receive())["type"] == "synced"
    await client.send({"type": "unsubscribe", "session_id": quiet})
    await client.send({"type": "ping"})
    assert await client.receive() == {"type": "pong"}
    await stored(outbox, [some_event(quiet, 1), some_event(loud, 1)])
    assert (await client.receive())["session_id"] == loud
    client.sock.close()


async def test_stopping_says_goodbye_with_service_restart(bus: Bus, ledger: list[str]) -> None:
    client = Socket(bus)
    await client.send({"type": "ping"})
    await client.receive()
    assert bus.end() < 2.0
    data = await asyncio.get_running_loop().sock_recv(client.sock, 100)
    assert data == b"\x88\x02" + (1012).to_bytes(2, "big")
    client.sock.close()


def test_the_subject_of_get_session_is_the_one_the_fake_serves() -> None:
    assert subjects.ledger_command(new_id(), GetSession.method).endswith(".get_session")
