"""Claims about the outbox, on a real broker that is killed."""

import asyncio

import nats.errors
import pytest
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import Outgoing
from valet_service import broker, limits
from valet_service.errors import EventTooLarge, Stopped
from valet_service.log_reader import Entry, LogReader
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess, until

SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"
SUBJECT = subjects.event(SESSION, "agent", "tool_updated")


def event(number: int) -> Outgoing:
    return Outgoing(subject=SUBJECT, payload=b'{"number":%d}' % number, msg_id=f"event-{number}")


async def stored(nc: Client, expected: int) -> list[tuple[int, bytes]]:
    """The whole log, once it has `expected` events."""
    entries: list[Entry] = []
    async with LogReader(nc, [subjects.session(SESSION)], start=1) as reader:
        while len(entries) < expected:
            entries += await asyncio.wait_for(reader.batch(1000), 10)
    assert entries[-1].pending == 0, "the log has more than was put"
    return [(entry.seq, entry.payload) for entry in entries]


async def test_nothing_is_lost_doubled_or_reordered_when_the_broker_is_killed_midway(
    server: BrokerProcess, nc: Client
) -> None:
    total = 6_000
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        futures = [outbox.put(event(number)) for number in range(total)]
        for kill_at in (1_500, 4_500):
            await futures[kill_at]
            assert not futures[kill_at + 1_000].done(), "the kill is to hit events in flight"
            server.kill()
            server.start()
        seqs = await asyncio.wait_for(asyncio.gather(*futures), 30)
    found = await stored(nc, total)
    assert [payload for _, payload in found] == [event(number).payload for number in range(total)]
    assert [seq for seq, _ in found] == seqs


async def test_an_event_put_while_the_broker_is_away_is_stored_when_it_is_back(
    server: BrokerProcess, nc: Client
) -> None:
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        await outbox.put(event(0))
        server.kill()
        late = outbox.put(event(1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.3)
        server.start()
        assert await asyncio.wait_for(late, 10) == 2


async def test_an_event_sent_again_under_its_id_gets_its_first_sequence(server: BrokerProcess, nc: Client) -> None:
    for _ in range(2):
        async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
            assert await outbox.put(event(0)) == 1


async def test_a_refusing_broker_is_asked_again_without_haste_until_it_takes_all_in_order(
    server: BrokerProcess,
) -> None:
    attempts = 0

    async def connect() -> Client:
        nonlocal attempts
        attempts += 1
        return await server.connect("outbox", reconnect=False)

    loop = asyncio.get_running_loop()
    async with Outbox(connect) as outbox:
        began = loop.time()
        futures = [outbox.put(event(number)) for number in range(2_000)]
        await until(lambda: attempts >= 4, "it has tried again")
        # pauses of 0.2, 0.4 and 0.8 s lie between four attempts
        assert loop.time() - began > 1.0
        nc = await server.connect()
        await broker.ensure_stream(nc)
        assert await asyncio.wait_for(asyncio.gather(*futures), 20) == list(range(1, 2_001))
        await broker.close(nc)


async def test_closing_tells_everybody_who_still_waits(server: BrokerProcess) -> None:
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        waiting = outbox.put(event(0))
        flushing = asyncio.create_task(outbox.flush())
        await asyncio.sleep(0)
    with pytest.raises(Stopped):
        await waiting
    with pytest.raises(Stopped):
        await flushing
    with pytest.raises(Stopped):
        outbox.put(event(1))


async def test_flush_ends_although_more_is_put_meanwhile(server: BrokerProcess, nc: Client) -> None:
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        number = 0
        outbox.put(event(number))
        flushing = asyncio.create_task(outbox.flush())
        while not flushing.done():
            number += 1
            outbox.put(event(number))
            assert number < 100_000
            await asyncio.sleep(0)
        assert outbox.backlog


async def test_a_writer_that_gave_up_waiting_does_not_unsend(server: BrokerProcess, nc: Client) -> None:
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        outbox.put(event(0)).cancel()
        assert await outbox.put(event(1)) == 2


async def test_a_writer_is_held_back_while_the_queue_is_full(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_QUEUE", 100)
    server.kill()
    async with Outbox(lambda: server.connect("outbox", reconnect=False)) as outbox:
        for number in range(100):
            await asyncio.wait_for(outbox.room(), 1)
            outbox.put(event(number))
        held_back = asyncio.create_task(outbox.room())
        await asyncio.sleep(0)
        assert not held_back.done()
        server.start()
        await asyncio.wait_for(held_back, 10)
        await asyncio.wait_for(outbox.flush(), 10)


async def test_an_oversized_event_is_refused_at_once() -> None:
    async def never() -> Client:
        raise nats.errors.NoServersError

    async with Outbox(never) as outbox:
        with pytest.raises(EventTooLarge):
            outbox.put(Outgoing(subject=SUBJECT, payload=b"x" * (limits.MAX_EVENT_BYTES + 1), msg_id="big"))
        assert outbox.backlog == 0


async def test_an_unforeseen_error_does_not_end_the_writer(server: BrokerProcess, nc: Client) -> None:
    errors = [ValueError("a surprise")]

    async def connect() -> Client:
        if errors:
            raise errors.pop()
        return await server.connect("outbox", reconnect=False)

    async with Outbox(connect) as outbox:
        assert await asyncio.wait_for(outbox.put(event(0)), 10) == 1
