"""Claims about reading the log, on a real broker that is killed."""

# nats-py's `jetstream` has untyped options.
# pyright: reportUnknownMemberType=false

import asyncio

import pytest
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import Outgoing
from valet_service import broker, limits
from valet_service.log_reader import Entry, LogReader
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

ONE, OTHER = "01JAAAAAAAAAAAAAAAAAAAAAA1", "01JBBBBBBBBBBBBBBBBBBBBBB2"


async def write(server: BrokerProcess, session: str, numbers: range, size: int = 10, source: str = "agent") -> None:
    """Append events whose payload is their number."""
    assert source in ("agent", "fact")
    subject = subjects.event(session, "agent" if source == "agent" else "fact", "written")
    async with Outbox(lambda: server.connect("writer", reconnect=False)) as outbox:
        for number in numbers:
            await outbox.room()
            outbox.put(
                Outgoing(subject=subject, payload=b"%0*d" % (size, number), msg_id=f"{session}-{source}-{number}")
            )
        await asyncio.wait_for(outbox.flush(), 60)


async def read(reader: LogReader, count: int) -> list[int]:
    """The numbers of the next `count` events."""
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += [int(entry.payload) for entry in await asyncio.wait_for(reader.batch(1000), 20)]
    return numbers


async def test_reading_goes_on_across_kills_without_gap_or_repetition(server: BrokerProcess, nc: Client) -> None:
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        numbers: list[int] = []
        for round_ in range(3):
            await write(server, ONE, range(round_ * 1_000, (round_ + 1) * 1_000))
            numbers += await read(reader, 300)  # the kill finds the rest on its way or in the buffer
            server.kill()
            server.start()
        numbers += await read(reader, 3_000 - len(numbers))
    assert numbers == list(range(3_000))


async def test_a_kill_while_events_are_written_and_read_costs_the_reader_none(
    server: BrokerProcess, nc: Client
) -> None:
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        writing = asyncio.create_task(write(server, ONE, range(8_000)))
        numbers = await read(reader, 1)
        server.kill()
        server.start()
        numbers += await read(reader, 8_000 - len(numbers))
        await writing
    assert numbers == list(range(8_000))


async def test_only_what_the_filters_name_is_read_in_the_order_of_the_log(server: BrokerProcess, nc: Client) -> None:
    await write(server, ONE, range(10), source="fact")
    await write(server, OTHER, range(10, 20))
    await write(server, ONE, range(20, 30))
    filters = [subjects.source(ONE, "fact"), subjects.session(OTHER)]
    async with LogReader(nc, filters, start=6) as reader:
        assert reader.pending_at_start == 15
        assert await read(reader, 15) == list(range(5, 20))


async def test_a_start_beyond_the_end_waits_for_that_sequence(server: BrokerProcess, nc: Client) -> None:
    await write(server, ONE, range(5))
    async with LogReader(nc, [subjects.session(ONE)], start=8) as reader:
        await write(server, ONE, range(5, 10))
        assert await read(reader, 3) == [7, 8, 9]


async def test_the_last_entry_of_the_log_says_that_nothing_is_behind_it(server: BrokerProcess, nc: Client) -> None:
    await write(server, ONE, range(5))
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        assert [entry.pending for entry in await _all(reader, 5)] == [4, 3, 2, 1, 0]


async def _all(reader: LogReader, count: int) -> list[Entry]:
    entries: list[Entry] = []
    while len(entries) < count:
        entries += await asyncio.wait_for(reader.batch(1000), 10)
    return entries


async def test_a_slow_reader_holds_the_broker_back_and_then_gets_everything(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug class: heartbeats of a stalled consumer answered as if there were room, so that memory grows for ever."""
    monkeypatch.setattr(limits, "READER_HEARTBEAT", 0.1)
    monkeypatch.setattr(limits, "READER_BUFFER_BYTES", 1 << 20)
    total, size = 40_000, 1_000
    await write(server, ONE, range(total), size)
    received = nc.stats["in_bytes"]
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        heartbeats, last = 0, -1
        while heartbeats < 10:  # ten of them without anything new: the broker has stopped sending
            await asyncio.sleep(limits.READER_HEARTBEAT)
            heartbeats, last = (heartbeats + 1, last) if reader.held_bytes == last else (0, reader.held_bytes)
        assert nc.stats["in_bytes"] - received < total * size / 4
        assert await read(reader, total) == list(range(total))


async def test_giving_up_on_a_batch_loses_nothing(server: BrokerProcess, nc: Client) -> None:
    writing = asyncio.create_task(write(server, ONE, range(3_000)))
    numbers: list[int] = []
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        while len(numbers) < 3_000:
            batch = asyncio.create_task(reader.batch(7))
            await asyncio.sleep(0)
            if not batch.done():
                batch.cancel()
                await asyncio.wait((batch,))
            if not batch.cancelled():
                numbers += [int(entry.payload) for entry in batch.result()]
    await writing
    assert numbers == list(range(3_000))


async def test_a_consumer_that_was_taken_away_is_replaced(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READER_HEARTBEAT", 0.1)
    await write(server, ONE, range(10))
    async with LogReader(nc, [subjects.session(ONE)], start=1) as reader:
        numbers = await read(reader, 10)
        js = nc.jetstream()
        for consumer in await js.consumers_info(subjects.STREAM):
            await js.delete_consumer(subjects.STREAM, consumer.name)
        await write(server, ONE, range(10, 20))
        numbers += await read(reader, 10)
    assert numbers == list(range(20))


async def test_a_reader_may_be_there_before_the_log(server: BrokerProcess) -> None:
    nc = await server.connect()
    reader = LogReader(nc, [subjects.session(ONE)], start=1)
    opening = asyncio.create_task(reader.__aenter__())
    await asyncio.sleep(0.1)
    assert not opening.done()
    await broker.ensure_stream(nc)
    await asyncio.wait_for(opening, 5)
    await write(server, ONE, range(3))
    assert await read(reader, 3) == [0, 1, 2]
    await reader.__aexit__()
    await broker.close(nc)


async def test_a_reader_of_the_latest_gets_the_last_of_every_subject_and_then_everything(
    server: BrokerProcess, nc: Client
) -> None:
    for session in (ONE, OTHER):
        await write(server, session, range(5))
    await write(server, ONE, range(5, 8))
    async with LogReader(nc, [subjects.every("agent", "written")], start=1, latest=True) as reader:
        assert await read(reader, 2) == [4, 7]
        await write(server, OTHER, range(5, 8))
        assert await read(reader, 3) == [5, 6, 7]
        server.kill()
        server.start()
        await write(server, ONE, range(8, 11))
        assert await read(reader, 3) == [8, 9, 10]


async def test_a_reader_of_the_latest_may_be_there_before_the_log(server: BrokerProcess) -> None:
    nc = await server.connect()
    reader = LogReader(nc, [subjects.every("agent", "written")], start=1, latest=True)
    opening = asyncio.create_task(reader.__aenter__())
    await broker.ensure_stream(nc)
    await asyncio.wait_for(opening, 5)
    server.kill()
    server.start()
    await write(server, ONE, range(2))
    assert (await read(reader, 1))[-1] in (0, 1)
    await reader.__aexit__()
    await broker.close(nc)


async def test_a_closed_reader_leaves_no_consumer_behind(server: BrokerProcess, nc: Client) -> None:
    async with LogReader(nc, [subjects.session(ONE)], start=1):
        pass
    js = nc.jetstream()
    deadline = asyncio.get_running_loop().time() + 5
    while await js.consumers_info(subjects.STREAM):
        assert asyncio.get_running_loop().time() < deadline, "the consumer is still there"
