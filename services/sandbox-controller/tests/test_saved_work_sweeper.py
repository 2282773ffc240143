"""Deleting superfluous saved work: a real broker that is killed in between. The ledger's answers are played."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from valet_protocol import ids, subjects
from valet_protocol.errors import NotFound, Unavailable
from valet_protocol.requests import ListSuperfluousWork, SuperfluousWork
from valet_sandbox_controller import config, limits
from valet_sandbox_controller.portal import superfluous
from valet_sandbox_controller.portal.sweeper import Sweeper
from valet_service import broker, credentials, rpc
from valet_service.errors import BadSettings, ObjectStoreUnavailable
from valet_service.jetstream_objects import JetStreamObjects
from valet_service.testing import BrokerProcess

A, B = ids.new_id(), ids.new_id()
KEPT = 5


def name(session: str, rest: str) -> str:
    return f"sessions/{session}/{rest}"


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


class Ledger:
    """Names all of a session's saved work but the latest pieces, as the real one: also what is deleted already."""

    def __init__(self) -> None:
        self.saved: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.adds: list[str] = []

    async def save(self, store: JetStreamObjects, session: str, count: int) -> None:
        for _ in range(count):
            piece = name(session, f"saved/{ids.new_id()}")
            self.saved.setdefault(session, []).append(piece)
            await store.put(piece, once(piece.encode() * 100), limit=1 << 20)

    def needed(self) -> list[str]:
        return sorted(piece for its in self.saved.values() for piece in its[-KEPT:])

    async def serve(self, nc: Client) -> None:
        async def answer(request: ListSuperfluousWork) -> SuperfluousWork:
            self.asked.append(request.session_id)
            if request.session_id not in self.saved:
                raise NotFound("session_not_found", "There is no such session.")
            return SuperfluousWork(objects=[*self.saved[request.session_id][:-KEPT], *self.adds])

        subject = subjects.ledger_command(A, ListSuperfluousWork.method).replace(f".{subjects.shard_of(A)}.", ".*.")
        await rpc.serve(nc, subject, ListSuperfluousWork, answer, queue="ledger")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def nc(server: BrokerProcess) -> AsyncIterator[Client]:
    client = await broker.connect(server.url, name="test")
    yield client
    await broker.close(client)


@pytest.fixture
async def ledger(nc: Client) -> Ledger:
    played = Ledger()
    await played.serve(nc)
    return played


async def at_most(store: JetStreamObjects, folder: str, count: int) -> None:
    """Wait until no more objects than that are left."""
    async with asyncio.timeout(30):
        while len(await store.list(folder)) > count:  # noqa: ASYNC110 - another process may delete them
            await asyncio.sleep(0.001)


def sweeper(nc: Client, every: float = 0.05) -> Sweeper:
    return Sweeper(nc, JetStreamObjects(nc), every=every, chance=random.Random(1))


async def test_what_is_needed_is_left_whatever_is_killed_in_between(
    server: BrokerProcess, nc: Client, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_PAUSE", 0.0)
    store = JetStreamObjects(nc)
    await ledger.save(store, A, 50)
    await ledger.save(store, B, 7)
    others = [name(A, "attachments/x"), name(A, "images/x"), name(ids.new_id(), "saved/fork"), "sessions/x/saved/y"]
    for other in others:
        await store.put(other, once(b"x"), limit=1)
    # killed in the middle of a look
    looking = asyncio.create_task(sweeper(nc).look())
    await at_most(store, f"sessions/{A}/saved/", 40)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    # the broker, while two are at it
    both = [asyncio.create_task(sweeper(nc).run()) for _ in range(2)]
    await at_most(store, f"sessions/{A}/saved/", 30)
    server.kill()
    server.start()
    await at_most(store, "sessions/", 2 * KEPT + len(others))
    for each in both:
        assert not each.done()
        each.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    assert await sweeper(nc).look() == 0
    assert list(await store.list("sessions/")) == sorted([*ledger.needed(), *others])
    for piece in ledger.needed():
        assert b"".join([chunk async for chunk in store.get(piece)]) == piece.encode() * 100


async def test_a_look_is_bounded_and_asks_only_about_sessions_with_new_work(
    nc: Client, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_MOST", 3)
    store = JetStreamObjects(nc)
    await ledger.save(store, A, KEPT + 4)
    await ledger.save(store, B, limits.SWEEP_LEAST)
    stranger = ids.new_id()
    for number in range(4):  # of another installation in the same bucket
        await store.put(name(stranger, f"saved/{number}"), once(b"x"), limit=1)
    ledger.adds = [name(stranger, "saved/0"), name(A, "attachments/x"), "x/y"]  # whatever the answer says
    one = sweeper(nc)
    assert [await one.look() for _ in range(3)] == [3, 1, 0]
    assert B not in ledger.asked
    asked = ledger.asked.count(A)
    await one.look()
    assert ledger.asked.count(A) == asked
    await ledger.save(store, A, 1)
    assert await one.look() == 1
    assert len(await store.list(f"sessions/{stranger}/saved/")) == 4


async def test_while_the_ledger_or_the_broker_is_away_nothing_is_deleted(
    server: BrokerProcess, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("valet_service.limits.OBJECT_ATTEMPTS", 1)
    store = JetStreamObjects(nc)
    await Ledger().save(store, A, KEPT)

    async def nobody(*_: object, **__: object) -> None:
        raise Unavailable("unavailable", "away")

    monkeypatch.setattr(rpc, "call", nobody)
    with pytest.raises(Unavailable):
        await sweeper(nc).look()
    assert len(await store.list("sessions/")) == KEPT
    server.kill()
    with pytest.raises(ObjectStoreUnavailable):
        await sweeper(nc).look()


async def test_the_portal_does_it_and_one_that_was_killed_is_gone_on_with(
    servers, start_service: Callable[..., object], tmp_path: Path
) -> None:
    account = credentials.key_from_seed((servers.places.keys / "account.seed").read_text())
    asks = f"rpc.ledger.*.{ListSuperfluousWork.method}"
    told = credentials.service_permissions("portal")
    told = msgspec.structs.replace(told, publish=(*told.publish, asks))
    text = credentials.creds(account, "portal", told, entropy=os.urandom(32), now=int(time.time()))
    (tmp_path / "portal.creds").write_text(text)
    api = await broker.connect(servers.broker.url, name="api", creds=str(servers.creds("api")))
    nc = await broker.connect(servers.broker.url, name="ledger", creds=str(servers.creds("session-ledger")))
    ledger, store = Ledger(), JetStreamObjects(api)
    await ledger.save(store, A, 150)
    await ledger.serve(nc)

    def portal() -> Any:
        return start_service("portal", VALET_NATS_CREDS=str(tmp_path / "portal.creds"), VALET_SWEEP_SECONDS="1")

    killed = portal()
    await at_most(store, f"sessions/{A}/saved/", 149)
    killed.stop(signal.SIGKILL)
    portal()
    await at_most(store, f"sessions/{A}/saved/", KEPT)
    assert list(await store.list(f"sessions/{A}/saved/")) == ledger.needed()
    for client in (api, nc):
        await broker.close(client)


def test_who_has_little_or_nothing_new_need_not_be_asked_about() -> None:
    pieces = [name(A, f"saved/{n}") for n in range(limits.SWEEP_LEAST + 1)]
    saved = superfluous.saved_work([*pieces, name(B, "saved/1"), name(A, "images/1"), "sessions/no-id/saved/1"])
    assert saved == {A: frozenset(pieces), B: frozenset({name(B, "saved/1")})}
    assert superfluous.to_ask(saved, {}) == [A]
    assert superfluous.to_ask(saved, {A: frozenset(pieces)}) == []
    assert superfluous.to_ask(saved, {A: frozenset(pieces[:-1])}) == [A]


def test_a_wrong_interval_is_refused() -> None:
    assert config.sweep_every({}) == limits.SWEEP_EVERY
    assert config.sweep_every({"VALET_SWEEP_SECONDS": "60"}) == 60
    for wrong in ("0", "never", "nan", "1e9"):
        with pytest.raises(BadSettings, match="VALET_SWEEP_SECONDS"):
            config.sweep_every({"VALET_SWEEP_SECONDS": wrong})
