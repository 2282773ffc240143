"""Claims about notes of agents. Real broker, PostgreSQL and event bus, which runs in this process; the ledger is a
fake."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from nats.aio.client import Client
from valet_event_bus import limits
from valet_event_bus.app import main
from valet_event_bus.notes import Note, for_people
from valet_event_bus.notify import Audience
from valet_event_bus.store import QUERIES
from valet_event_bus.testing import Bus, Database, Socket, stored
from valet_protocol import codec, subjects
from valet_protocol.errors import BadRequest, NotFound, TooMany, Unavailable
from valet_protocol.events import facts
from valet_protocol.ids import new_id
from valet_protocol.requests import ListNotifications, NotificationPage
from valet_protocol.tools.notifications import (
    CheckMailbox,
    EmitNotification,
    MailboxPage,
    MailboxRead,
    MarkMailboxRead,
    NotificationEmitted,
)
from valet_service import rpc, settings
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess, until
from valet_service.testing_sandbox import Agent, OwnerLedger

NOTE = Note(id="N", session_id="S", level="warning", title="Careful", text="", time_ms=1)


@pytest.fixture
async def bus(nats: BrokerProcess, nc: Client, database_url: str) -> AsyncIterator[Bus]:
    """Where connections are handed over to it; it is not a process here."""
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        environment = {"VALET_NATS_URL": nats.url, "VALET_DATABASE_URL": database_url, "VALET_RUN_DIR": folder}
        stop = asyncio.Event()
        running = asyncio.create_task(main(settings.load(environment), stop))
        bus = Bus(nats, Path(folder))
        await until(bus.entrance.exists, "it takes connections", timeout=60)
        yield bus
        stop.set()
        await running


@pytest.fixture
async def agents(nc: Client, bus: Bus) -> tuple[list[Agent], list[str]]:
    """The agents of four sessions and their owners: three are the same person's."""
    same, other = new_id(), new_id()
    ledger = OwnerLedger({new_id(): user for user in (same, same, same, other)})
    await ledger.serve(nc)
    return [Agent(nc, session_id) for session_id in ledger.owners], list(ledger.owners.values())


async def emit(agent: Agent, title: str, to: Agent | None = None, **fields: str) -> str:
    target = to.session_id if to else None
    tool = EmitNotification(title=title, target_session=target, **fields)  # type: ignore[arg-type]
    return (await agent.ask(tool, NotificationEmitted)).id


async def mailbox(agent: Agent, *, unread: bool = True) -> list[str]:
    return [one.title for one in (await agent.ask(CheckMailbox(unread=unread), MailboxPage)).items]


async def notifications(nc: Client, user: str) -> NotificationPage:
    request = ListNotifications(user=user)
    return await rpc.call(nc, subjects.service("event-bus", request.method), request, NotificationPage)


def test_a_note_is_for_the_owner_and_those_who_may_act_each_once() -> None:
    audience = Audience(owner="olga", title="Fix it", roles={"carl": "collaborator", "vera": "viewer"})
    told = for_people(NOTE, "olga", audience)
    assert [(one.user, one.kind, one.title, one.text, one.level) for one in told] == [
        (user, "agent", "Fix it", "Careful", "warning") for user in ("olga", "carl")
    ]
    assert len({one.id for one in told}) == 2
    assert [one.id for one in for_people(NOTE, "olga", Audience())] == [told[0].id]


async def test_what_an_agent_says_reaches_its_people_live_and_stays_in_their_list(
    nc: Client, bus: Bus, agents: tuple[list[Agent], list[str]], outbox: Outbox, ledger: list[str]
) -> None:
    (agent, *_), (owner, *_) = agents
    guest = new_id()
    began = (
        facts.SessionRequested(owner=owner, title="Fix it", model="a/b"),
        facts.ParticipantAdded(user=guest, role="collaborator", by=owner),
    )
    events = [codec.new_event(one, id=new_id(), session_id=agent.session_id, now_ms=1) for one in began]
    await stored(outbox, [codec.encode(event, source="/test") for event in events])
    async with asyncio.timeout(20):
        while True:
            if (await notifications(nc, guest)).items:
                break
            await asyncio.sleep(0.02)
    people = [Socket(bus, user) for user in (owner, guest)]
    for person in people:
        await person.subscribe(agent.session_id)
    tool = EmitNotification(title="Done", text="All tests pass.", level="info")
    answers = [await agent.ask(tool, NotificationEmitted, request_id="R1") for _ in range(3)]
    assert answers == [answers[0]] * 3
    for person, user in zip(people, (owner, guest), strict=True):
        told = (await person.until(lambda message: message["type"] == "notification"))["notification"]
        assert (told["kind"], told["title"], told["text"]) == ("agent", "Fix it", "Done\n\nAll tests pass.")
        assert (told["session_id"], told["level"], told["seq"]) == (agent.session_id, "info", 0)
        page = await notifications(nc, user)
        assert [one.id for one in page.items if one.kind == "agent"] == [told["id"]]
        person.sock.close()


async def test_a_note_into_a_mailbox_is_read_there_and_by_nobody_else(
    nc: Client, agents: tuple[list[Agent], list[str]]
) -> None:
    (parent, child, sibling, stranger), (owner, *_) = agents
    note = await emit(child, "Half done", to=parent, text="\0Tests fail.", level="warning")
    await emit(sibling, "All done", to=parent)
    page = await parent.ask(CheckMailbox(), MailboxPage)
    assert [(one.title, one.from_session) for one in page.items] == [
        ("All done", sibling.session_id),
        ("Half done", child.session_id),
    ]
    assert (page.unread, page.next, page.items[1].id) == (2, None, note)
    assert (page.items[1].text, page.items[1].level, page.items[1].read_at) == ("Tests fail.", "warning", None)
    assert await mailbox(child) == await mailbox(stranger) == []
    assert (await notifications(nc, owner)).items == []
    for to in (stranger, Agent(nc, new_id())):
        with pytest.raises(NotFound) as refused:
            await emit(child, "x", to=to)
        assert refused.value.code == "session_not_found"
    assert await child.ask(MarkMailboxRead(ids=[note, "\0"]), MailboxRead) == MailboxRead(marked=0, unread=0)
    mark = MarkMailboxRead(ids=[note])
    marked = [await parent.ask(mark, MailboxRead, request_id="R1") for _ in range(2)]
    assert marked == [MailboxRead(marked=1, unread=1)] * 2
    assert (await mailbox(parent), await mailbox(parent, unread=False)) == (["All done"], ["All done", "Half done"])
    assert await parent.ask(MarkMailboxRead(all=True), MailboxRead) == MailboxRead(marked=1, unread=0)
    with pytest.raises(BadRequest) as nothing:
        await parent.ask(MarkMailboxRead(), MailboxRead)
    assert nothing.value.code == "nothing_named"


async def test_a_mailbox_is_read_in_pages_newest_first(agents: tuple[list[Agent], list[str]]) -> None:
    (agent, *_), _ = agents
    await asyncio.gather(*(emit(agent, "note", to=agent) for _ in range(5)))
    first = await agent.ask(CheckMailbox(limit=3), MailboxPage)
    second = await agent.ask(CheckMailbox(limit=3, before=first.next), MailboxPage)
    assert (len(first.items), len(second.items), second.next) == (3, 2, None)
    assert len({one.id for one in first.items + second.items}) == 5
    with pytest.raises(BadRequest, match="`next` of the page before"):
        await agent.ask(CheckMailbox(before="x"), MailboxPage)


async def test_an_agent_in_a_loop_and_a_mailbox_nobody_reads_are_stopped(
    nc: Client, agents: tuple[list[Agent], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second, third, _), (owner, *_) = agents
    monkeypatch.setattr(limits, "NOTES_AN_HOUR", 2)
    outcomes = await asyncio.gather(*(emit(first, "again") for _ in range(4)), return_exceptions=True)
    assert [one.code for one in outcomes if isinstance(one, TooMany)] == ["too_many_notes"] * 2
    assert (await notifications(nc, owner)).unread == 2
    monkeypatch.setattr(limits, "MAILBOX_UNREAD", 1)
    outcomes = await asyncio.gather(emit(second, "a", to=first), emit(third, "b", to=first), return_exceptions=True)
    assert [one.code for one in outcomes if isinstance(one, TooMany)] == ["mailbox_full"]
    await first.ask(MarkMailboxRead(all=True), MailboxRead)
    await emit(second, "c", to=first)
    assert await mailbox(first) == ["c"]


async def test_notes_are_refused_while_the_database_is_away_and_kept_over_it(
    agents: tuple[list[Agent], list[str]], server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent, *_), _ = agents
    await emit(agent, "kept", to=agent)
    server.end()
    try:
        monkeypatch.setattr(limits, "NOTE_ANSWER", 0.3)
        with pytest.raises(Unavailable) as refused:
            await emit(agent, "lost", to=agent)
        assert refused.value.code == "notifications_unavailable"
    finally:
        server.start()
    monkeypatch.setattr(limits, "NOTE_ANSWER", 60.0)
    assert await mailbox(agent) == ["kept"]


async def test_notes_that_were_read_long_ago_are_removed_and_unread_ones_never(
    agents: tuple[list[Agent], list[str]], database_url: str
) -> None:
    (agent, *_), _ = agents
    note = await emit(agent, "read", to=agent)
    await emit(agent, "unread", to=agent)
    await emit(agent, "to people")
    await agent.ask(MarkMailboxRead(ids=[note]), MailboxRead)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(QUERIES["prune_notes"], 1 << 60)
        rows = await connection.fetch("SELECT title FROM notifications.notes")
    finally:
        await connection.close()
    assert [row["title"] for row in rows] == ["unread"]
