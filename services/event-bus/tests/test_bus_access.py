"""Claims about people who may no longer watch. Real broker, real event bus; the ledger is a fake that always says yes.

Bug class: whoever was once let in stays.
"""

import asyncio

import pytest
from nats.aio.client import Client
from valet_event_bus.access import Access
from valet_event_bus.testing import Bus, Socket, SseReader, handed_over, some_event, stored
from valet_protocol import codec
from valet_protocol.errors import NotFound
from valet_protocol.events.facts import ParticipantAdded, ParticipantRemoved
from valet_protocol.ids import new_id
from valet_protocol.requests import HandOver
from valet_service.outbox import Outbox


def removal(session_id: str, user: str) -> codec.Outgoing:
    return _fact(session_id, ParticipantRemoved(user=user, by="owner"))


def admission(session_id: str, user: str) -> codec.Outgoing:
    return _fact(session_id, ParticipantAdded(user=user, role="viewer", by="owner"))


def _fact(session_id: str, data: ParticipantAdded | ParticipantRemoved) -> codec.Outgoing:
    event = codec.new_event(data, id=new_id(), session_id=session_id, now_ms=1_700_000_000_000)
    return codec.encode(event, source="/test")


def follow(bus: Bus, user: str, session_id: str) -> SseReader:
    return SseReader(handed_over(bus.entrance, HandOver(kind="sse", user=user, session_id=session_id)))


def refusal(message: dict) -> str:
    assert message["type"] == "error", message
    return message["problem"]["code"]


async def test_who_is_removed_gets_the_removal_then_an_error_and_nothing_more(
    bus: Bus, outbox: Outbox, ledger: list[str]
) -> None:
    session, quiet = new_id(), new_id()
    removed, stays = Socket(bus, "ben"), Socket(bus, "anna")
    for client in (removed, stays):
        await client.subscribe(session)
    await removed.subscribe(quiet)
    # in one batch of the reader, as far as it can be arranged
    seqs = await stored(outbox, [some_event(session, 0), removal(session, "ben"), some_event(session, 1)])
    seen, _ = await removed.events(2)
    assert seen == {session: seqs[:2]}
    message = await removed.receive()
    assert (refusal(message), message["session_id"]) == ("access_revoked", session)
    seen, _ = await stays.events(3)
    assert seen == {session: seqs}
    (other,) = await stored(outbox, [some_event(quiet, 0)])
    assert (await removed.events(1))[0] == {quiet: [other]}  # the other session goes on
    await removed.send({"type": "subscribe", "session_id": session})
    assert refusal(await removed.receive()) == "session_not_found"  # although the ledger says yes
    await stored(outbox, [admission(session, "ben")])
    await stays.events(1)
    await removed.send({"type": "subscribe", "session_id": session})
    seen, _ = await removed.events(4)
    assert len(seen[session]) == 4
    for client in (removed, stays):
        client.sock.close()


async def test_an_event_stream_of_somebody_removed_is_closed_and_those_of_others_are_not(
    bus: Bus, outbox: Outbox
) -> None:
    session, other = new_id(), new_id()
    removed, elsewhere, stays = (
        follow(bus, "ben", session),
        follow(bus, "ben", other),
        follow(bus, "anna", session),
    )
    for reader in (removed, elsewhere, stays):
        await reader.until(lambda r: r.synced_seq is not None)
    seqs = await stored(outbox, [removal(session, "ben"), some_event(session, 1), some_event(other, 1)])
    await removed.until(lambda r: r.ended)
    assert removed.seqs == seqs[:1]
    await stays.until(lambda r: len(r.seqs) == 2)
    await elsewhere.until(lambda r: len(r.seqs) == 1)
    assert not stays.ended
    late = follow(bus, "ben", session)  # api had said yes just before
    await late.until(lambda r: r.ended)
    assert late.seqs == []
    for reader in (removed, elsewhere, stays, late):
        reader.close()


async def test_who_is_removed_while_history_is_sent_gets_no_more_of_it(bus: Bus, outbox: Outbox) -> None:
    session = new_id()
    seqs = await stored(outbox, [some_event(session, n, 50_000) for n in range(300)])  # 15 MB: more than is buffered
    reader = follow(bus, "ben", session)
    await reader.until(lambda r: len(r.seqs) > 2)
    watcher = follow(bus, "anna", session)
    await stored(outbox, [removal(session, "ben")])
    await watcher.until(lambda r: len(r.seqs) == 301)
    await reader.until(lambda r: r.ended)
    assert reader.seqs == seqs[: len(reader.seqs)]
    assert len(reader.seqs) < 300
    reader.close()
    watcher.close()


async def test_a_yes_that_was_asked_for_before_the_removal_no_longer_counts(nc: Client, ledger: list[str]) -> None:
    access = Access(nc)
    session = new_id()
    asking = asyncio.create_task(access.check("ben", session))
    await asyncio.sleep(0)
    access.removed("ben", session)
    with pytest.raises(NotFound):
        await asking
    with pytest.raises(NotFound):
        await access.check("ben", session)
    await access.check("anna", session)


async def test_the_memory_of_a_removal_ends_and_the_ledger_is_asked_again(nc: Client, ledger: list[str]) -> None:
    now = 0.0
    access = Access(nc, clock=lambda: now)
    session = new_id()
    await access.check("ben", session)
    access.removed("ben", session)
    now = 61.0
    await access.check("ben", session)
    assert ledger == [session, session]
