"""Claims about notifications as people get them. Real broker, PostgreSQL and event bus; the ledger is a fake."""

import asyncio
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncpg
import msgspec
import pytest
from nats.aio.client import Client
from valet_event_bus import notify
from valet_event_bus.store import QUERIES, Store
from valet_event_bus.testing import Bus, Database, Socket, SseReader, handed_over, stored
from valet_protocol import codec, subjects
from valet_protocol.errors import BadRequest, Unavailable
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    HandOver,
    ListNotifications,
    MarkNotificationsRead,
    NotificationPage,
    NotificationsRead,
)
from valet_service import rpc
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess


@pytest.fixture
def buses(nats: BrokerProcess, nc: Client, database_url: str) -> Iterator[list[Bus]]:
    """Two replicas; the second is not started."""
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        services = [Bus(nats, Path(folder) / str(number), database_url) for number in range(2)]
        services[0].start()
        yield services
        for service in services:
            service.kill()


@pytest.fixture
async def people(nc: Client, ledger: list[str]) -> "People":
    return People(nc)


class People:
    """What api asks on behalf of users."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc

    async def page(self, user: str, timeout: float = 10.0, **options: object) -> NotificationPage:
        request = msgspec.convert({"user": user, **options}, ListNotifications)
        subject = subjects.service("event-bus", request.method)
        return await rpc.call(self._nc, subject, request, NotificationPage, timeout=timeout)

    async def mark(self, user: str, **options: object) -> NotificationsRead:
        request = msgspec.convert({"user": user, **options}, MarkNotificationsRead)
        return await rpc.call(self._nc, subjects.service("event-bus", request.method), request, NotificationsRead)

    async def kinds(self, user: str, count: int) -> list[str]:
        """The kinds of a user's notifications, oldest first, once there are so many."""
        async with asyncio.timeout(20):
            while True:
                try:
                    page = await self.page(user)
                except Unavailable:
                    continue
                if len(page.items) >= count:
                    return [one.kind for one in reversed(page.items)]
                await asyncio.sleep(0.02)


class Session:
    """Somebody's session and what happens in it."""

    def __init__(self, outbox: Outbox, owner: str) -> None:
        self.id = new_id()
        self.owner = owner
        self._outbox = outbox
        self._turns = 0

    async def add(self, *data: Data) -> list[int]:
        events = [codec.new_event(one, id=new_id(), session_id=self.id, now_ms=1_700_000_000_000) for one in data]
        return await stored(self._outbox, [codec.encode(event, source="/test") for event in events])

    async def begin(self) -> "Session":
        await self.add(facts.SessionRequested(owner=self.owner, title="Fix it", model="a/b"))
        return self

    def turn(self) -> list[Data]:
        """A turn of the owner's from its prompt to its end."""
        self._turns += 1
        prompt, turn = f"p{self._turns}", f"t{self._turns}"
        return [
            facts.PromptAccepted(prompt_id=prompt, content="do it", author=self.owner, model="a/b"),
            facts.TurnDispatched(turn_id=turn, prompt_id=prompt, content="do it", model="a/b", author=self.owner),
            agent.TurnEnded(turn_id=turn, status="completed"),
        ]


def question(number: int = 1) -> agent.QuestionAsked:
    return agent.QuestionAsked(
        question_id=f"Q{number}", kind="question", questions=[agent.Question(question=f"Number {number}?")]
    )


async def test_a_notification_is_stored_listed_in_pages_and_marked_as_read(
    buses: list[Bus], outbox: Outbox, people: People
) -> None:
    user, other = new_id(), new_id()
    session = await Session(outbox, user).begin()
    await session.add(*(question(number) for number in range(1, 8)))
    await people.kinds(user, 7)
    first = await people.page(user, limit=4)
    assert [one.text for one in first.items] == ["Number 7?", "Number 6?", "Number 5?", "Number 4?"]
    second = await people.page(user, limit=4, before=first.next)
    assert [one.text for one in second.items] == ["Number 3?", "Number 2?", "Number 1?"]
    assert (first.unread, second.next) == (7, None)
    assert {(one.session_id, one.title, one.read_at) for one in first.items} == {(session.id, "Fix it", None)}

    assert await people.mark(other, ids=[first.items[0].id]) == NotificationsRead(marked=0, unread=0)
    ids = [first.items[0].id, first.items[1].id, "no such thing"]
    assert await people.mark(user, ids=ids) == NotificationsRead(marked=2, unread=5)
    assert await people.mark(user, ids=ids) == NotificationsRead(marked=0, unread=5)
    left = await people.page(user, unread=True)
    assert [one.question_id for one in left.items] == ["Q5", "Q4", "Q3", "Q2", "Q1"]
    read = (await people.page(user, limit=1)).items[0].read_at
    assert read is not None
    assert read.endswith("Z")
    assert await people.mark(user, all=True) == NotificationsRead(marked=5, unread=0)
    with pytest.raises(BadRequest) as refused:
        await people.mark(user)
    assert refused.value.code == "nothing_named"
    assert (await people.page(other)).items == []


async def test_a_notification_reaches_every_connection_of_the_user_at_any_replica_and_nobody_else(
    buses: list[Bus], outbox: Outbox, people: People
) -> None:
    buses[1].start()
    user, other = new_id(), new_id()
    here, there, stranger = Socket(buses[0], user), Socket(buses[1], user), Socket(buses[1], other)
    for client in (here, there, stranger):
        await client.send({"type": "ping"})
        assert (await client.receive())["type"] == "pong"
    session = await Session(outbox, user).begin()
    await session.add(question())
    for client in (here, there):
        message = await client.receive()
        assert message["type"] == "notification"
        assert message["notification"]["kind"] == "question_asked"
        assert message["notification"]["text"] == "Number 1?"
    (listed,) = (await people.page(user)).items
    assert message["notification"]["id"] == listed.id
    await people.mark(user, ids=[listed.id])
    for client in (here, there):
        assert await client.receive() == {"type": "notifications_read", "ids": [listed.id]}
    await stranger.send({"type": "ping"})
    assert (await stranger.receive())["type"] == "pong"
    for client in (here, there, stranger):
        client.sock.close()


async def test_an_answered_question_no_longer_asks_for_attention(
    buses: list[Bus], outbox: Outbox, people: People
) -> None:
    user = new_id()
    client = Socket(buses[0], user)
    await client.send({"type": "ping"})
    await client.receive()
    session = await Session(outbox, user).begin()
    await session.add(question())
    asked = (await client.receive())["notification"]
    answer = facts.QuestionAnswered(question_id="Q1", answers=[["Yes"]], answered_by="person", user=user)
    await session.add(answer)
    assert await client.receive() == {"type": "notifications_read", "ids": [asked["id"]]}
    assert (await people.page(user)).unread == 0
    client.sock.close()


async def test_who_watches_at_whichever_replica_and_however_is_not_told_that_a_turn_ended(
    buses: list[Bus], outbox: Outbox, people: People
) -> None:
    buses[1].start()
    user = new_id()
    session = await Session(outbox, user).begin()
    socket = Socket(buses[1], user)
    await socket.subscribe(session.id)
    watcher = Socket(buses[0])
    await watcher.subscribe(session.id)
    await watcher.until(lambda m: m["type"] == "presence" and user in [one["user"] for one in m["users"]])
    await session.add(*session.turn())
    await session.add(question(1))
    assert await people.kinds(user, 1) == ["question_asked"]
    await socket.send({"type": "presence", "session_id": session.id, "state": "idle"})
    await watcher.until(lambda m: m["type"] == "presence" and "idle" in [one["state"] for one in m["users"]])
    await session.add(*session.turn())
    assert await people.kinds(user, 2) == ["question_asked", "turn_completed"]
    await socket.send({"type": "unsubscribe", "session_id": session.id})
    await watcher.until(lambda m: m["type"] == "presence" and len(m["users"]) == 1)
    stream = SseReader(handed_over(buses[0].entrance, HandOver(kind="sse", user=user, session_id=session.id)))
    await stream.until(lambda r: r.synced_seq is not None)
    buses[1].end()
    await session.add(*session.turn(), question(2))
    assert await people.kinds(user, 3) == ["question_asked", "turn_completed", "question_asked"]
    stream.close()
    for client in (socket, watcher):
        client.sock.close()


async def test_killed_replicas_make_every_notification_once(buses: list[Bus], outbox: Outbox, people: People) -> None:
    user = new_id()
    session = await Session(outbox, user).begin()
    total = 0
    for round_ in range(6):
        bus = buses[round_ % 2]
        buses[(round_ + 1) % 2].start()  # the next one takes part before this one goes
        storing = asyncio.create_task(session.add(*(event for _ in range(80) for event in session.turn())))
        await asyncio.sleep(0.01 * round_)
        bus.end(signal.SIGKILL)
        await storing
        total += 80
    page_ids: list[str] = []
    await _until_stored(people, user, total)
    before: int | None = None
    while True:
        page = await people.page(user, limit=200, before=before)
        page_ids += [one.id for one in page.items]
        before = page.next
        if before is None:
            break
    assert len(page_ids) == len(set(page_ids)) == total


async def test_what_another_replica_has_dealt_with_is_left_alone(database_url: str) -> None:
    first, second = Store(), Store()
    await first.open(database_url, 0)
    await second.open(database_url, 5)  # counts at the very first start only
    session, user = new_id(), new_id()
    data = [facts.SessionRequested(owner=user, model="a/b"), *(question(number) for number in range(4))]
    events = [
        codec.decode(
            codec.encode(codec.new_event(one, id=new_id(), session_id=session, now_ms=1), source="/t").payload, n
        )
        for n, one in enumerate(data, 1)
    ]

    def decide(some: Sequence[Event], known: notify.Known, silent_until: int) -> notify.Digest:
        return notify.digest(some, known, lambda _: frozenset(), silent_until)

    assert len(await first.keep(events[:3], 3, decide)) == 2
    assert await second.keep(events[:3], 3, decide) == []
    assert await second.keep([], 2, decide) == []
    assert await first.position() == 3
    holding = await asyncpg.connect(database_url)
    async with holding.transaction():  # another replica is at it
        await holding.execute(QUERIES["lock_position"])
        keeping = asyncio.create_task(second.keep(events, 5, decide))
        done, _ = await asyncio.wait([keeping], timeout=0.3)
        assert not done
        await holding.execute(QUERIES["advance"], 4)
    (news,) = await keeping
    assert isinstance(news, notify.Notification)
    assert news.question_id == "Q3"
    await holding.close()
    first.close()
    second.close()


async def test_what_happened_while_nobody_read_is_told_later_and_what_was_there_first_never(
    nats: BrokerProcess, nc: Client, outbox: Outbox, people: People, database_url: str
) -> None:
    user = new_id()
    session = await Session(outbox, user).begin()
    await session.add(question(1))
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        bus = Bus(nats, Path(folder), database_url)
        try:
            bus.start()
            await session.add(question(2))
            assert await people.kinds(user, 1) == ["question_asked"]
            bus.end(signal.SIGKILL)
            await session.add(*session.turn(), question(3))
            bus.start()
            await people.kinds(user, 3)
            assert [one.text for one in (await people.page(user)).items] == ["Number 3?", "do it", "Number 2?"]
        finally:
            bus.kill()


async def test_following_does_not_need_the_database_and_nothing_is_lost_while_it_is_away(
    nats: BrokerProcess, nc: Client, outbox: Outbox, people: People, server: Database
) -> None:
    url = await server.create()
    user = new_id()
    server.end()
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        bus = Bus(nats, Path(folder), url)
        try:
            bus.start()  # ready without it
            client = Socket(bus, user)
            session = await Session(outbox, user).begin()
            await client.subscribe(session.id)
            await session.add(question(1))
            assert (await client.receive())["type"] == "events"
            with pytest.raises(Unavailable) as refused:
                await people.page(user)
            assert refused.value.code == "notifications_unavailable"
            server.start()
            await people.kinds(user, 1)
            server.end()
            await session.add(*(question(number) for number in range(2, 30)))
            server.start()
            assert len(await people.kinds(user, 29)) == 29
            client.sock.close()
        finally:
            bus.kill()


async def test_what_was_read_long_ago_is_removed_and_what_is_unread_never(
    buses: list[Bus], outbox: Outbox, people: People, database_url: str
) -> None:
    user = new_id()
    session = await Session(outbox, user).begin()
    await session.add(*(question(number) for number in range(3)))
    await people.kinds(user, 3)
    newest, middle, _ = (await people.page(user)).items
    await people.mark(user, ids=[newest.id, middle.id])
    connection = await asyncpg.connect(database_url)
    statement = "UPDATE notifications.notifications SET read_ms = read_ms - 31 * 86400000::bigint WHERE id = $1"
    await connection.execute(statement, middle.id)
    await connection.execute("UPDATE notifications.notifications SET created_ms = 0")
    await connection.close()
    buses[0].end(signal.SIGTERM)
    buses[0].start()  # removes at its start, and every hour
    async with asyncio.timeout(10):
        while True:
            try:
                page = await people.page(user)
            except Unavailable:
                continue
            if len(page.items) == 2:
                break
            await asyncio.sleep(0.02)
    assert [one.question_id for one in page.items] == ["Q2", "Q0"]


async def _until_stored(people: People, user: str, count: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await people.page(user, limit=1)).unread >= count:
                    return
            except Unavailable:
                continue
            await asyncio.sleep(0.05)
