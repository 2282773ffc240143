"""Claims about objects in JetStream: the layout of NATS's own, and what happens when the broker goes away."""

# nats-py leaves its options untyped.
# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client
from valet_service import broker, limits
from valet_service.errors import ObjectNotFound, ObjectStoreUnavailable
from valet_service.jetstream_objects import BUCKET, STREAM, JetStreamObjects
from valet_service.testing import BrokerProcess

CHUNK = limits.OBJECT_CHUNK_BYTES


async def _content(size: int, wait: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for start in range(0, size, CHUNK):
        yield bytes(min(CHUNK, size - start))
    if wait is not None:
        await wait.wait()
        yield b"the end"


async def _stored_messages(nc: Client) -> int:
    return (await nc.jetstream().stream_info(STREAM)).state.messages


async def test_the_tools_of_nats_read_and_write_the_same_objects(nc: Client) -> None:
    store = JetStreamObjects(nc)
    await store.put("ours/1", _content(300_000), limit=1 << 20)
    theirs = await nc.jetstream().object_store(BUCKET)
    assert (await theirs.get("ours/1")).data == bytes(300_000)
    await theirs.put("theirs/1", b"hello")
    assert [chunk async for chunk in store.get("theirs/1")] == [b"hello"]
    assert (await store.stat("theirs/1")).bytes == 5
    await theirs.delete("theirs/1")
    with pytest.raises(ObjectNotFound):
        await store.stat("theirs/1")
    await store.put("theirs/1", _content(5), limit=5)
    await store.delete("theirs/1")
    await store.delete("ours/1")
    assert await _stored_messages(nc) == 0


async def test_nothing_is_left_of_what_was_replaced_or_failed(nc: Client) -> None:
    store = JetStreamObjects(nc)
    for size in (10 * CHUNK, 3 * CHUNK):
        await store.put("a", _content(size), limit=1 << 30)
    assert await _stored_messages(nc) == 4
    with pytest.raises(Exception, match="larger"):
        await store.put("a", _content(20 * CHUNK), limit=15 * CHUNK)
    await asyncio.gather(*(store.put("a", _content(2 * CHUNK), limit=1 << 30) for _ in range(5)))
    assert await _stored_messages(nc) == 3


async def test_a_broker_that_is_killed_ends_a_put_and_a_second_one_succeeds(nc: Client, server: BrokerProcess) -> None:
    store = JetStreamObjects(nc)
    await store.put("a", _content(10), limit=10)
    wait = asyncio.Event()
    putting = asyncio.create_task(store.put("a", _content(20 * CHUNK, wait), limit=1 << 30))
    await asyncio.wait((putting,), timeout=0.3)
    server.kill()
    server.start()
    wait.set()
    with pytest.raises(ObjectStoreUnavailable):
        await asyncio.wait_for(putting, 20)
    assert b"".join([chunk async for chunk in store.get("a")]) == bytes(10)
    await store.put("a", _content(20 * CHUNK), limit=1 << 30)
    assert (await store.stat("a")).bytes == 20 * CHUNK


async def test_reading_goes_on_after_the_broker_was_killed(nc: Client, server: BrokerProcess) -> None:
    store = JetStreamObjects(nc)
    await store.put("a", _content(10 * CHUNK), limit=1 << 30)
    total = 0
    async for chunk in store.get("a"):
        if not total:
            server.kill()
            server.start()
        total += len(chunk)
    assert total == 10 * CHUNK


async def test_an_object_replaced_while_it_is_read_is_no_mixture(nc: Client) -> None:
    store = JetStreamObjects(nc)
    await store.put("a", _content(10 * CHUNK), limit=1 << 30)
    reading = store.get("a")
    await anext(reading)
    await store.put("a", _content(20 * CHUNK), limit=1 << 30)
    with pytest.raises(ObjectStoreUnavailable, match="replaced"):
        await anext(reading)


async def test_damage_is_noticed(nc: Client) -> None:
    store = JetStreamObjects(nc)
    await store.put("a", _content(3 * CHUNK), limit=1 << 30)
    js = nc.jetstream()
    await js.delete_msg(STREAM, 2)
    subject = (await js.get_msg(STREAM, 1)).subject
    assert subject
    await js.publish(subject, bytes(CHUNK - 1) + b"!")
    with pytest.raises(ObjectStoreUnavailable, match="damaged"):
        async for _ in store.get("a"):
            pass


async def _cut_put(nc: Client, url: str) -> None:
    """Chunks of an object whose writer was killed before it could say that they are one."""
    other = await broker.connect(url, name="cut", reconnect=False)
    wait = asyncio.Event()
    putting = asyncio.create_task(JetStreamObjects(other).put("cut", _content(3 * CHUNK, wait), limit=1 << 30))
    before = await _stored_messages(nc)
    async with asyncio.timeout(20):
        while await _stored_messages(nc) < before + 3:  # noqa: ASYNC110 - another process stores them
            await asyncio.sleep(0.01)
    await broker.close(other)
    putting.cancel()
    await asyncio.gather(putting, return_exceptions=True)


async def test_what_a_crash_has_left_is_swept_and_nothing_else(
    nc: Client, server: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JetStreamObjects(nc)
    assert await store.sweep() == 0  # there is no bucket yet
    for number in range(5):  # with batches of two: several requests
        await store.put(f"kept/{number}", _content(2 * CHUNK), limit=1 << 30)
    await store.put("empty", _content(0), limit=1)
    monkeypatch.setattr(limits, "PULL_BATCH", 2)
    await _cut_put(nc, server.url)
    server.kill()
    server.start()
    assert len(await store.list("kept/")) == 5  # the broker is back
    wait = asyncio.Event()
    under_way = asyncio.create_task(store.put("new", _content(3 * CHUNK, wait), limit=1 << 30))
    async with asyncio.timeout(20):
        while await _stored_messages(nc) < 5 * 3 + 1 + 3 + 3:  # noqa: ASYNC110 - another process stores them
            await asyncio.sleep(0.01)
    assert await store.sweep() == 0  # none is old enough
    monkeypatch.setattr("valet_service.jetstream_objects.SLOW_PUT", 0.0)
    monkeypatch.setattr("valet_service.jetstream_objects.LEFT_BEHIND", -1.0)
    assert await store.sweep() == 2
    wait.set()
    # the one under way was swept as well, at an age at which nothing is under way: it must not become half an object
    with pytest.raises(ObjectStoreUnavailable, match="so slowly"):
        await asyncio.wait_for(under_way, 30)
    assert await store.list("kept/") == tuple(f"kept/{number}" for number in range(5))
    assert [len(b"".join([chunk async for chunk in store.get(f"kept/{number}")])) for number in range(5)] == [
        2 * CHUNK
    ] * 5
    with pytest.raises(ObjectNotFound):
        await store.stat("new")
    assert await store.sweep() == 0
    assert await _stored_messages(nc) == 5 * 3 + 1
    assert (await store.put("new", _content(3 * CHUNK), limit=1 << 30)).bytes == 3 * CHUNK
