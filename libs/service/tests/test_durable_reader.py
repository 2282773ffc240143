"""Claims about acting on events, on a real broker that is killed."""

import asyncio

import nats.errors
import pytest
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import Outgoing
from valet_service import limits
from valet_service.durable_reader import Delivery, delete_consumer, ensure_consumer, read_durable
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess, until

SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"
NAME = subjects.runner_consumer(SESSION)
FACTS = [subjects.source(SESSION, "fact")]


async def write(server: BrokerProcess, numbers: range) -> None:
    subject = subjects.event(SESSION, "fact", "written")
    async with Outbox(lambda: server.connect("writer", reconnect=False)) as outbox:
        for number in numbers:
            outbox.put(Outgoing(subject=subject, payload=b"%d" % number, msg_id=f"event-{number}"))
        await asyncio.wait_for(outbox.flush(), 20)


class Handler:
    """Remembers what it was handed and acknowledges it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        """Number and attempt."""

    async def __call__(self, delivery: Delivery) -> None:
        self.seen.append((int(delivery.payload), delivery.attempt))
        await delivery.acknowledge()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_every_event_is_handled_once_in_order_and_waited_for(server: BrokerProcess, nc: Client) -> None:
    await ensure_consumer(nc, NAME, FACTS)
    await ensure_consumer(nc, NAME, FACTS)  # the same again is fine
    await write(server, range(600))  # more than one pull
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    await until(lambda: len(handler.seen) == 600, "what was there is handled")
    await write(server, range(600, 610))
    await until(lambda: len(handler.seen) == 610, "what came later is handled")
    assert handler.seen == [(number, 1) for number in range(610)]
    await stop(reading)


async def test_what_a_crashed_reader_held_comes_again(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACK_WAIT", 0.5)
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(3))
    first = await server.connect("crashes")
    handed = asyncio.Event()

    async def hang(delivery: Delivery) -> None:
        handed.set()
        await asyncio.Event().wait()

    reading = asyncio.create_task(read_durable(first, NAME, hang))
    await asyncio.wait_for(handed.wait(), 5)
    await first.close()  # as a crash: nothing more is said to the broker
    await stop(reading)
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    await until(lambda: len(handler.seen) == 3, "all three came again")
    assert sorted(handler.seen) == [(0, 2), (1, 2), (2, 2)]
    await stop(reading)


async def test_a_stopped_reader_gives_back_at_once_what_it_had_not_handled(server: BrokerProcess, nc: Client) -> None:
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(3))
    handed = asyncio.Event()

    async def hang(delivery: Delivery) -> None:
        handed.set()
        await asyncio.Event().wait()

    reading = asyncio.create_task(read_durable(nc, NAME, hang))
    await asyncio.wait_for(handed.wait(), 5)
    await stop(reading)
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    await until(lambda: len(handler.seen) == 3, "they came again", timeout=limits.ACK_WAIT / 2)
    await stop(reading)


async def test_a_handler_that_fails_is_handed_the_event_again(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDLER_RETRY_WAIT", 0.05)
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(2))
    handler = Handler()

    async def fail_once(delivery: Delivery) -> None:
        if delivery.attempt == 1 and delivery.payload == b"0":
            raise RuntimeError("not today")
        await handler(delivery)

    reading = asyncio.create_task(read_durable(nc, NAME, fail_once))
    await until(lambda: len(handler.seen) == 2, "both are handled")
    assert handler.seen == [(1, 1), (0, 2)]
    await stop(reading)


async def test_a_handler_slower_than_the_acknowledgement_wait_is_handed_nothing_twice(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACK_WAIT", 0.3)
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(5))
    handler = Handler()

    async def slow(delivery: Delivery) -> None:
        await asyncio.sleep(1.0 if delivery.payload == b"0" else 0)  # three times the wait, four others behind it
        await handler(delivery)

    reading = asyncio.create_task(read_durable(nc, NAME, slow))
    await until(lambda: len(handler.seen) >= 5, "all are handled")
    await asyncio.sleep(2 * limits.ACK_WAIT)  # time for what should not come
    assert handler.seen == [(number, 1) for number in range(5)]
    await stop(reading)


async def test_an_unacknowledged_event_comes_again_although_its_handler_did_not_fail(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACK_WAIT", 0.3)
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(1))
    attempts: list[int] = []

    async def forget(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 2:
            await delivery.acknowledge()

    reading = asyncio.create_task(read_durable(nc, NAME, forget))
    await until(lambda: attempts == [1, 2], "it came again")
    await stop(reading)


async def test_every_event_is_handled_although_the_broker_is_killed(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACK_WAIT", 1.0)
    await ensure_consumer(nc, NAME, FACTS)
    await write(server, range(1_000))
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    for kill_at in (100, 500):
        await until(lambda at=kill_at: len(handler.seen) >= at, "some are handled")
        server.kill()
        server.start()
    await until(lambda: {number for number, _ in handler.seen} == set(range(1_000)), "all are handled")
    await write(server, range(1_000, 1_001))
    await until(lambda: handler.seen[-1] == (1_000, 1), "the reader still reads")
    await stop(reading)


async def test_a_reader_may_be_there_before_its_consumer(server: BrokerProcess, nc: Client) -> None:
    await write(server, range(1))
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    await asyncio.sleep(0.2)
    await ensure_consumer(nc, NAME, FACTS)
    await until(lambda: handler.seen == [(0, 1)], "it is handled")
    await stop(reading)


async def test_a_consumer_can_start_late_in_the_log_and_be_deleted_twice(server: BrokerProcess, nc: Client) -> None:
    await write(server, range(10))
    await ensure_consumer(nc, NAME, FACTS, start=9)
    handler = Handler()
    reading = asyncio.create_task(read_durable(nc, NAME, handler))
    await until(lambda: handler.seen == [(8, 1), (9, 1)], "the last two are handled")
    await stop(reading)
    await delete_consumer(nc, NAME)
    await delete_consumer(nc, NAME)


async def test_a_refused_consumer_is_an_error_in_the_brokers_words(server: BrokerProcess, nc: Client) -> None:
    with pytest.raises(nats.errors.Error, match="overlap"):
        await ensure_consumer(nc, NAME, ["session.>", "session.*.*.fact.>"])


async def test_a_consumer_that_is_to_be_kept_stays_as_it_is(nc: Client) -> None:
    every = [subjects.EVERYTHING]
    await ensure_consumer(nc, "kept", every, start=5, keep=True)
    await ensure_consumer(nc, "kept", every, start=5, keep=True)
    await ensure_consumer(nc, "kept", every, keep=True)
    with pytest.raises(nats.errors.Error, match="kept not made"):
        await ensure_consumer(nc, "kept", every)
    info = await nc.jetstream().consumer_info(subjects.STREAM, "kept")  # pyright: ignore[reportUnknownMemberType]
    assert info.config.opt_start_seq == 5
