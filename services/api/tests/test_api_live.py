"""Claims about live connections: authorised here, handed over, served by the event bus; and about outages."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from valet_api.testing import FakeLedger
from valet_event_bus.testing import SseReader, some_event, stored
from valet_protocol.ids import new_id
from valet_service.outbox import Outbox
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


async def follow(api: Any, session: str, headers: str = "", query: str = "") -> SseReader:
    sock = socket.create_connection(("127.0.0.1", api.port), timeout=5)
    sock.setblocking(False)
    request = (
        f"GET /api/sessions/{session}/events{query} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {api.token}\r\n{headers}\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(sock, request.encode())
    return SseReader(sock)


async def test_a_stream_has_history_mark_and_live_and_outlives_the_api(
    api: Any, bus: Any, ledger: FakeLedger, outbox: Outbox, session: str
) -> None:
    seqs = await stored(outbox, [some_event(session, n) for n in range(20)])
    reader = await follow(api, session)
    await reader.until(lambda r: r.synced_seq is not None)
    assert reader.head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream")
    assert reader.seqs == seqs
    api.kill()
    seqs += await stored(outbox, [some_event(session, n) for n in range(20, 40)])
    await reader.until(lambda r: len(r.seqs) == 40)
    assert reader.seqs == seqs
    reader.close()
    api.start()


async def test_last_event_id_goes_before_after(
    api: Any, bus: Any, ledger: FakeLedger, outbox: Outbox, session: str
) -> None:
    seqs = await stored(outbox, [some_event(session, n) for n in range(20)])
    by_query = await follow(api, session, query=f"?after={seqs[4]}")
    by_header = await follow(api, session, headers=f"Last-Event-ID: {seqs[9]}\r\n", query="?after=0")
    await by_query.until(lambda r: r.synced_seq is not None)
    await by_header.until(lambda r: r.synced_seq is not None)
    assert (by_query.seqs, by_header.seqs) == (seqs[5:], seqs[10:])
    by_query.close()
    by_header.close()


async def test_a_connection_that_served_other_requests_can_be_handed_over(
    api: Any, bus: Any, ledger: FakeLedger, outbox: Outbox, session: str, client: httpx.AsyncClient
) -> None:
    seqs = await stored(outbox, [some_event(session, 1)])
    for _ in range(3):
        assert (await client.get("/api/me")).status_code == 200
        async with client.stream("GET", f"/api/sessions/{session}/events") as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    assert int(line[3:]) == seqs[0]
                    break


async def test_a_hundred_streams_cost_the_api_no_descriptors(
    api: Any, bus: Any, ledger: FakeLedger, session: str
) -> None:
    import psutil

    before = psutil.Process(api.process.pid).num_fds()
    readers = [await follow(api, session) for _ in range(100)]
    for reader in readers:
        await reader.until(lambda r: r.synced_seq is not None)
    assert psutil.Process(api.process.pid).num_fds() <= before + 2
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("by_query", [False, True])
async def test_a_websocket_is_opened_with_the_token_in_header_or_query(
    api: Any, bus: Any, ledger: FakeLedger, outbox: Outbox, session: str, by_query: bool
) -> None:
    (seq,) = await stored(outbox, [some_event(session, 1)])
    url = f"ws://127.0.0.1:{api.port}/ws" + (f"?token={api.token}" if by_query else "")
    headers = {} if by_query else {"Authorization": f"Bearer {api.token}"}
    async with connect(url, additional_headers=headers) as client:
        await client.send(json.dumps({"type": "subscribe", "session_id": session, "after": 0}))
        events = json.loads(await asyncio.wait_for(client.recv(), 5))
        assert events["events"][0]["seq"] == seq
        assert json.loads(await asyncio.wait_for(client.recv(), 5))["type"] == "synced"
        pong = await client.ping()
        await asyncio.wait_for(pong, 5)


@pytest.mark.parametrize("query", ["", "?token=wrong"])
async def test_a_websocket_without_a_valid_token_is_401(api: Any, bus: Any, query: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{api.port}/ws{query}")
    assert refused.value.response.status_code == 401
    assert refused.value.response.headers["content-type"] == "application/problem+json"


async def test_a_plain_request_to_the_websocket_is_400(api: Any, bus: Any, client: httpx.AsyncClient) -> None:
    response = await client.get("/ws")
    assert (response.status_code, response.json()["code"]) == (400, "not_a_websocket")


async def test_a_stream_asked_for_while_the_event_bus_restarts_waits_for_it(
    api: Any, bus: Any, ledger: FakeLedger, session: str
) -> None:
    bus.end()
    reader = await follow(api, session)
    bus.start()
    await reader.until(lambda r: r.synced_seq is not None)
    reader.close()


async def test_without_an_event_bus_the_answer_is_503_and_when_to_try_again(
    api: Any, bus: Any, ledger: FakeLedger, session: str, client: httpx.AsyncClient
) -> None:
    bus.end()
    try:
        began = asyncio.get_running_loop().time()
        responses = await asyncio.gather(*[client.get(f"/api/sessions/{session}/events") for _ in range(3)])
        assert asyncio.get_running_loop().time() - began < 8
        for response in responses:
            assert (response.status_code, response.json()["code"]) == (503, "event_bus_unavailable")
            assert response.headers["retry-after"] == "2"
    finally:
        bus.start()


async def test_signed_in_users_go_on_while_the_database_is_away_and_strangers_get_503(
    api: Any, database: Any, ledger: FakeLedger, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/api/me")).status_code == 200
    database.kill()
    try:
        assert (await client.post("/api/sessions", json={})).status_code == 201
        async with httpx.AsyncClient(base_url=api.url, timeout=20) as stranger:
            response = await stranger.get("/api/me", headers={"Authorization": f"Bearer {new_id()}"})
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        assert (await client.post("/api/users", json={"name": f"u-{new_id().lower()}"})).status_code == 503
    finally:
        database.start()
    async with httpx.AsyncClient(base_url=api.url, timeout=20) as stranger:
        response = await stranger.get("/api/me", headers={"Authorization": f"Bearer {new_id()}"})
    assert response.status_code == 401


async def test_the_api_stops_within_its_grace_although_streams_are_open(
    api: Any, bus: Any, ledger: FakeLedger, session: str
) -> None:
    reader = await follow(api, session)
    await reader.until(lambda r: r.synced_seq is not None)
    assert api.end() < 4
    assert not reader.ended
    reader.close()
    api.start()
