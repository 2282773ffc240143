"""Claims about people whose part in a session ended by what happened in the session above it. Real broker, real event
bus; the ledger is a fake that is away, and behind the log, when it is told to be.

Bug class: a role that is inherited is taken away above, and the stream below goes on.
"""

import asyncio

import pytest
from nats.aio.client import Client
from valet_event_bus import limits
from valet_event_bus.access import Access
from valet_event_bus.doubts import Doubt, Doubts
from valet_event_bus.testing import Bus, Socket, SseReader, handed_over, session_view, some_event, stored
from valet_protocol import codec, subjects
from valet_protocol.errors import NotFound, Unavailable
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import ParticipantRemoved, ShareLinkRevoked
from valet_protocol.ids import new_id
from valet_protocol.requests import GetOwner, GetSession, HandOver, Owner, SessionView
from valet_service import rpc, tasks
from valet_service.outbox import Outbox
from valet_service.owners import Owners
from valet_service.testing import until


class Tree:
    """A ledger that knows a session, its child, that one's child, and another session."""

    def __init__(self) -> None:
        ids = {subjects.shard_of(session_id): session_id for session_id in (new_id() for _ in range(200))}
        self.top, self.child, self.grandchild, self.other = list(ids.values())[:4]  # of different ledgers
        self.parents = {self.top: None, self.child: self.top, self.grandchild: self.child, self.other: None}
        self.gone = set[str]()
        """Who takes part in the tree no more, once it is seen."""
        self.seq = 1 << 60
        """How far its read model has got."""
        self.away = set[str]()
        """Sessions that it cannot say anything of."""
        self.asked: list[GetSession] = []

    async def serve(self, nc: Client) -> None:
        await rpc.serve(nc, "rpc.ledger.*.get_session", GetSession, self._session, queue="ledger")
        await rpc.serve(nc, "rpc.ledger.*.get_owner", GetOwner, self._owner, queue="ledger")
        await nc.flush()

    async def _owner(self, request: GetOwner) -> Owner:
        return Owner(session_id=request.session_id, user="owner", parent=self.parents[request.session_id])

    async def _session(self, request: GetSession) -> SessionView:
        self.asked.append(request)
        if request.session_id in self.away:
            raise Unavailable("unavailable", "Not at the moment.")
        if request.user in self.gone and request.session_id != self.other:
            raise NotFound("session_not_found", "There is no such session.")
        return session_view(request.session_id, self.seq)


def fact(session_id: str, data: Data) -> codec.Outgoing:
    return codec.encode(codec.new_event(data, id=new_id(), session_id=session_id, now_ms=1), source="/test")


def follow(bus: Bus, user: str, session_id: str) -> SseReader:
    return SseReader(handed_over(bus.entrance, HandOver(kind="sse", user=user, session_id=session_id)))


async def test_who_is_removed_from_a_session_is_cut_from_those_below_once_the_ledger_says_so(
    bus: Bus, outbox: Outbox, nc: Client
) -> None:
    tree = Tree()
    await tree.serve(nc)
    web = Socket(bus, "ben")
    for session_id in (tree.child, tree.other):
        await web.subscribe(session_id)
    streams = [follow(bus, user, tree.grandchild) for user in ("ben", "anna")]
    for reader in streams:
        await reader.until(lambda r: r.synced_seq is not None)
    tree.seq = 0  # behind: it says yes of everybody
    before = len(tree.asked)
    (seq,) = await stored(outbox, [fact(tree.top, ParticipantRemoved(user="ben", by="owner"))])
    await until(lambda: len(tree.asked) > before, "the ledger is asked")
    assert {(one.user, one.session_id) for one in tree.asked[before:]} == {("ben", tree.top)}
    tree.seq = seq
    tree.gone.add("ben")
    message = await web.receive()
    assert (message["session_id"], message["problem"]["code"]) == (tree.child, "access_revoked")
    ben, anna = streams
    await ben.until(lambda r: r.ended)
    # a connection that api has let through just before, and a yes that was believed for a while
    late = follow(bus, "ben", tree.grandchild)
    await late.until(lambda r: r.ended)
    await web.send({"type": "subscribe", "session_id": tree.child})
    assert (await web.receive())["problem"]["code"] == "session_not_found"
    (below, elsewhere) = await stored(outbox, [some_event(tree.grandchild, 0), some_event(tree.other, 0)])
    await anna.until(lambda r: r.seqs == [below])
    assert (await web.events(1))[0] == {tree.other: [elsewhere]}
    assert (ben.seqs, late.seqs) == ([], [])
    assert "anna" not in {one.user for one in tree.asked}
    for one in (ben, anna, late):
        one.close()
    web.sock.close()


async def test_who_came_by_a_link_is_cut_when_it_is_revoked_although_the_ledger_dies_then(
    bus: Bus, outbox: Outbox, nc: Client
) -> None:
    tree = Tree()
    tree.gone.add("ben")
    streams = {
        (user, session_id): follow(bus, user, session_id)
        for user in ("ben", "anna")
        for session_id in (tree.top, tree.grandchild, tree.other)
    }
    for reader in streams.values():
        await reader.until(lambda r: r.synced_seq is not None)
    await stored(outbox, [fact(tree.top, ShareLinkRevoked(link_id="l", by="owner"))])  # and nothing more
    (first,) = await stored(outbox, [some_event(tree.grandchild, 0)])
    await streams["ben", tree.grandchild].until(lambda r: r.seqs == [first])  # without an answer nobody is cut
    await tree.serve(nc)
    for session_id in (tree.top, tree.grandchild):
        await streams["ben", session_id].until(lambda r: r.ended)
    for (user, session_id), reader in streams.items():
        if user == "anna" or session_id == tree.other:
            (seq,) = await stored(outbox, [some_event(session_id, 1)])
            await reader.until(lambda r, seq=seq: seq in r.seqs)
    for reader in streams.values():
        reader.close()


async def test_after_a_removal_no_earlier_yes_counts_for_a_while(nc: Client) -> None:
    tree, now = Tree(), 0.0
    await tree.serve(nc)
    access = Access(nc, clock=lambda: now)
    for user in ("ben", "anna"):
        await access.check(user, tree.child)
    tree.gone |= {"ben", "anna"}
    await access.check_again("ben", tree.child)  # nothing has been heard of it here
    access.removed("ben", tree.top)
    for check in (access.check, access.check_again):
        with pytest.raises(NotFound):
            await check("ben", tree.child)
    await access.check("anna", tree.child)
    access.forget()
    with pytest.raises(NotFound):
        await access.check("anna", tree.child)


class Watchers:
    """Ben watches two sessions."""

    def __init__(self, *sessions: str) -> None:
        self.sessions = list(sessions)

    def watchers(self) -> list[tuple[str, str]]:
        return [(session_id, "ben") for session_id in self.sessions]

    def cut(self, user: str, session_id: str) -> None:
        self.sessions.remove(session_id)


@pytest.mark.parametrize("away", ["child", "grandchild"])
async def test_a_session_whose_ledger_is_away_holds_up_no_other_and_is_asked_about_later(
    nc: Client, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOUBT_RETRY", 0.05)
    tree = Tree()
    await tree.serve(nc)
    tree.gone.add("ben")
    tree.away.add(getattr(tree, away))
    watched = Watchers(tree.child, tree.grandchild)
    doubts = Doubts(nc, watched, Access(nc), Owners(nc, 10))
    running = asyncio.create_task(doubts.run())
    doubts.raise_doubt(Doubt(session_id=tree.top, user="ben", seq=1))
    await until(lambda: watched.sessions == [getattr(tree, away)], "the other one is cut")
    tree.away.clear()
    await until(lambda: watched.sessions == [], "this one too")
    await tasks.end(running)
