"""Claims about the hub itself, on a real broker."""

import asyncio

from nats.aio.client import Client
from valet_event_bus.frames import Batch
from valet_event_bus.hub import Hub
from valet_event_bus.testing import some_delta, some_event, stored
from valet_protocol import subjects
from valet_protocol.ids import new_id
from valet_service import tasks
from valet_service.outbox import Outbox


class Watching:
    def __init__(self, user: str = "U") -> None:
        self.user = user
        self.seqs: list[int] = []
        self.cut = False

    def send(self, batch: Batch) -> None:
        self.seqs += [line.seq for line in batch.lines]

    def revoked(self) -> None:
        self.cut = True


class Nobody:
    """Does not care who takes part."""

    def added(self, user: str, session_id: str) -> None: ...

    def removed(self, user: str, session_id: str) -> None: ...


async def test_events_purged_before_the_hub_read_them_hold_nobody_up(nc: Client, outbox: Outbox) -> None:
    session = new_id()
    seqs = await stored(outbox, [some_event(session, 0), *(some_delta(session, "M", n) for n in range(5))])
    await nc.jetstream().purge_stream(subjects.STREAM, subject=subjects.deltas_of(session, "M"))
    hub = Hub(nc, seqs[0], Nobody())
    async with asyncio.timeout(5):
        await hub.reach(seqs[-1])
    assert hub.position == seqs[-1]


async def test_a_hub_that_is_behind_does_not_pretend_to_be_there(nc: Client, outbox: Outbox) -> None:
    seqs = await stored(outbox, [some_event(new_id(), n) for n in range(3)])
    hub = Hub(nc, seqs[0], Nobody())
    await hub.reach(seqs[-1])  # nobody runs it
    assert hub.position == seqs[0]


async def test_a_session_nobody_watches_any_more_is_forgotten(nc: Client, outbox: Outbox) -> None:
    session = new_id()
    hub = Hub(nc, 0, Nobody())
    running = asyncio.create_task(hub.run())
    watcher, other, third = Watching(), Watching(), Watching()
    channel = hub.join(session, watcher)
    assert hub.join(session, other) is channel
    channel.add(watcher)
    seqs = await stored(outbox, [some_event(session, n) for n in range(10)])
    await hub.reach(seqs[-1])
    assert watcher.seqs == seqs
    hub.leave(channel, other)
    hub.leave(channel, other)  # twice is fine
    assert hub.join(session, third) is channel
    hub.leave(channel, watcher)
    hub.leave(channel, third)
    assert hub.join(session, third) is not channel
    await tasks.end(running)
