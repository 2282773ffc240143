"""Following a session: every event once and in order, whatever happens to the connection."""

import asyncio
from contextlib import aclosing

import pytest
from valet_local.client.errors import BadAnswer, NotReachable
from valet_local.client.follow import Entry, Synced
from valet_local.client.http import Client
from valet_local.client.sse import FrameReader
from valet_local.client.testing import SESSION, FakeApi
from valet_protocol.errors import NotFound
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Event


def chunk(number: int) -> Event:
    data = Delta(message_id="m", part_id="p", offset=number, text="ä€😀"[number % 3])
    return Event(id=f"{number:026}", type="delta.text", session_id=SESSION, time_ms=1, data=data)


async def read(client: Client, count: int, *, after: int = 0) -> list[Entry | Synced]:
    """The first items of a stream."""
    items: list[Entry | Synced] = []
    async with aclosing(client.follow(SESSION, after=after)) as following:
        async for item in following:
            items.append(item)
            if len(items) == count:
                break
    return items


def sequences(items: list[Entry | Synced]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Entry)]


async def test_history_comes_before_the_synced_marker_and_live_events_after_it():
    async with FakeApi() as api, Client(api.endpoint) as client:
        await api.append(chunk(0), chunk(1))
        asked = asyncio.Event()
        api.on_request = lambda seen: asked.set()
        reading = asyncio.create_task(read(client, 4))
        await asyncio.wait_for(asked.wait(), 10)
        await api.append(chunk(2))
        items = await reading
    assert [type(item) for item in items[:2]] == [Entry, Entry]
    assert sequences(items) == [1, 2, 3]
    assert Synced(seq=2) in items or Synced(seq=3) in items


@pytest.mark.timeout(60)
async def test_a_stream_cut_at_any_byte_is_resumed_with_nothing_lost_and_nothing_doubled():
    async with FakeApi() as api, Client(api.endpoint) as client:
        await api.append(*(chunk(number) for number in range(12)))
        api.cuts = [0, 1, 5, 300, 411, 412, 413, 3, 700, 250]
        items = await read(client, 13)
    assert sequences(items) == list(range(1, 13))
    assert [item for item in items if isinstance(item, Synced)] == [Synced(seq=12)]
    assert [seen.cursor for seen in api.seen] == sorted(seen.cursor for seen in api.seen)


async def test_events_that_come_again_are_given_out_once():
    async with FakeApi() as api, Client(api.endpoint) as client:
        await api.append(*(chunk(number) for number in range(4)))
        items = await read(client, 3, after=2)
    assert sequences(items) == [3, 4]
    assert api.seen[0].cursor == 2


async def test_an_api_that_restarts_is_waited_for():
    waits: list[str] = []
    async with FakeApi() as api, Client(api.endpoint) as client:
        await api.append(chunk(0))
        api.restarting, api.hang_up = 2, 0
        async with aclosing(client.follow(SESSION, on_wait=lambda reason, _: waits.append(reason))) as following:
            first = await anext(following)
    assert first.seq == 1
    assert waits == ["the ledger restarts", "the ledger restarts"]


async def test_an_api_that_stays_away_is_given_up_after_the_patience():
    async with FakeApi() as api:
        endpoint = api.endpoint
    async with Client(endpoint) as client:
        with pytest.raises(NotReachable, match="valet up"):
            await anext(client.follow(SESSION, patience=0.2))


async def test_a_session_of_nobody_is_refused_and_not_asked_for_again():
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers = {}
        with pytest.raises(NotFound, match="no such session"):
            await client.session(SESSION)
        with pytest.raises(NotFound, match=r"no session 'x/\.\./y'"):
            await anext(client.follow("x/../y"))
    assert len(api.seen) == 1


async def test_a_stream_that_is_not_of_events_is_no_stream_of_ours():
    async with FakeApi() as api, Client(api.endpoint) as client:
        await api.append(chunk(0))
        api._log[0] = b'{"type":"x"}'
        with pytest.raises(BadAnswer, match="what is no event"):
            await read(client, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_are_the_same_however_their_bytes_are_cut(size: int):
    stream = (
        'id: 7\nevent: a.b\ndata: {"ä":1}\n\n: note\n\nid: 8\r\ndata: x\r\ndata: y\r\n\r\nid: 9\ndata: cut'.encode()
    )
    reader = FrameReader()
    frames = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
    assert [(frame.id, frame.event, frame.data) for frame in frames] == [
        (b"7", "a.b", '{"ä":1}'.encode()),
        (b"8", "", b"x\ny"),
    ]
