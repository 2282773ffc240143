"""Backups that do not fit together: an old log under a new database, and an old database under a new log.

Real NATS, real PostgreSQL, real ledger processes; the backups are copies of the servers' own files.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import encode, new_event
from valet_protocol.events import agent, sandbox
from valet_protocol.ids import new_id
from valet_service import broker, credentials
from valet_service.durable_reader import Delivery, ensure_consumer, read_durable
from valet_service.log_reader import LogReader
from valet_service.settings import Settings
from valet_service.testing import BrokerProcess, until
from valet_session_ledger import limits, rebuild
from valet_session_ledger.errors import LogBehind
from valet_session_ledger.intake import is_folded
from valet_session_ledger.put_back import PutBack
from valet_session_ledger.put_back_log import PutBackLog
from valet_session_ledger.put_back_plan import FILLERS, lost_for_good, messages
from valet_session_ledger.queries import load
from valet_session_ledger.rows import EventRow
from valet_session_ledger.store import open_store
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform

Log = dict[int, tuple[str, bytes]]


class Backups:
    """Copies of a broker's store."""

    def __init__(self, server: BrokerProcess, store: Path, place: Path) -> None:
        self._server = server
        self._store = store / "jetstream"
        self._place = place

    def take(self) -> None:
        """Stop the broker, copy its store, start it again."""
        self._server.kill()
        shutil.copytree(self._store, self._place)
        self._server.start()

    def restore(self) -> None:
        """Stop the broker, put the copy in place, start it again."""
        self._server.kill()
        shutil.rmtree(self._store)
        shutil.copytree(self._place, self._store)
        self._server.start()

    def lose(self) -> None:
        """Stop the broker, remove its store, start it again."""
        self._server.kill()
        shutil.rmtree(self._store)
        self._server.start()


@pytest.fixture
def backups(server: BrokerProcess, tmp_path: Path) -> Backups:
    return Backups(server, tmp_path / "nats", tmp_path / "backup")


async def _log(nc: Client) -> Log:
    """Everything in the log but deltas, by sequence."""
    found: Log = {}
    async with LogReader(nc, [subjects.every_of(source) for source in ("fact", "agent", "sandbox")], start=1) as reader:
        pending = reader.pending_at_start
        while pending:
            entries = await reader.batch(1000)
            pending = entries[-1].pending
            found |= {entry.seq: (entry.subject, entry.payload) for entry in entries}
    return found


async def _turn(platform: Platform, session_id: str, runner: FakeSandbox, number: int) -> None:
    await platform.prompt(session_id, f"Prompt {number}")
    turn_id, prompt_id = await platform.dispatched(session_id, turns=number)
    await runner.play_turn(turn_id, prompt_id, steps=2, text=f"Answer {number}")
    await platform.until(session_id, lambda view: view.turns == number and not view.active_turn)


async def _two_turns(platform: Platform, backups: Backups) -> str:
    """A session with a turn, a backup of the log, and a turn after it."""
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await _turn(platform, session_id, runner, 1)
    backups.take()
    await _turn(platform, session_id, runner, 2)
    return session_id


@pytest.fixture
async def pool(settings: Settings) -> AsyncIterator[asyncpg.Pool]:
    pool, _ = await open_store(settings.database_url)
    yield pool
    await pool.close()


# -- an old log ------------------------------------------------------------------------------------------------


async def test_an_old_log_gets_its_lost_events_back_at_their_own_sequences(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await _two_turns(platform, backups)
    before, messages_before = await _log(platform.nc), await platform.messages(session_id)
    view = await platform.session(session_id)
    assert ledger.stop() == 0
    backups.restore()
    old = await _log(platform.nc)
    assert len(old) < len(before)
    ledger.start()
    assert await _log(platform.nc) == before
    state = await PutBackLog(platform.nc).state()
    assert (state.last_seq, state.closed) == (max(before), False)
    assert await PutBackLog(platform.nc).next(FILLERS, 1) == (0, "")
    assert await platform.messages(session_id) == messages_before
    assert await platform.session(session_id) == view
    await _turn(platform, session_id, platform.fake(session_id), 3)
    assert min((await _log(platform.nc)).keys() - before.keys()) == max(before) + 1
    await rebuild.verify(ledger.settings)


async def test_a_rebuild_under_an_old_log_puts_it_back_first(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await _two_turns(platform, backups)
    before, page = await _log(platform.nc), await platform.messages(session_id)
    assert ledger.stop() == 0
    backups.restore()
    await rebuild.verify(ledger.settings)
    assert len(await _log(platform.nc)) < len(before)
    await rebuild.rebuild(ledger.settings)
    assert await _log(platform.nc) == before
    ledger.start()
    assert await platform.messages(session_id) == page


async def test_a_log_that_was_lost_altogether_is_put_back_whole(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await _two_turns(platform, backups)
    before = await _log(platform.nc)
    assert ledger.stop() == 0
    backups.lose()
    ledger.start()
    assert await _log(platform.nc) == before
    await _turn(platform, session_id, platform.fake(session_id), 3)
    await rebuild.verify(ledger.settings)


async def test_a_ledger_killed_while_it_puts_events_back_goes_on_where_it_was(
    ledger: LedgerProcess, platform: Platform, backups: Backups, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await _two_turns(platform, backups)
    before = await _log(platform.nc)
    assert ledger.stop() == 0
    backups.restore()
    monkeypatch.setattr(limits, "PUT_BACK_CHUNK", 2)
    old = max(await _log(platform.nc))
    half = old + (max(before) - old) // 2
    log = PutBackLog(platform.nc)
    killed = asyncio.create_task(PutBack(platform.nc, pool, load()).run())
    while (await log.state()).last_seq < half:
        assert not killed.done()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    state = await log.state()
    assert state.closed
    assert state.last_seq < max(before)
    # nobody gets in between: this runner's event waits until the log is open again
    late = platform.fake(session_id).agent(agent.SessionTitled(title="Late"))
    waiting = asyncio.ensure_future(late)
    ledger.start()
    assert await waiting > max(before)
    after = await _log(platform.nc)
    assert {seq: after[seq] for seq in before} == before
    await platform.until(session_id, lambda view: view.title == "Late")
    await rebuild.verify(ledger.settings)


async def test_what_was_written_before_the_ledger_came_stops_it_with_words_on_what_to_do(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await _two_turns(platform, backups)
    assert ledger.stop() == 0
    backups.restore()
    seq = await platform.fake(session_id).sandbox(sandbox.SandboxLost(epoch=1, kind="gone", detail="restored"))
    with pytest.raises(AssertionError):
        ledger.start(within=3.0)
    words = ledger.log.read_text()
    assert f"at sequence {seq} something else has been written" in words
    assert "run `valet ledger rebuild` before" in words
    # doing so helps
    backups.restore()
    await rebuild.rebuild(ledger.settings)
    ledger.start()
    assert (await platform.session(session_id)).status == "ready"


async def test_what_was_written_where_a_delta_stood_is_noticed_too(
    ledger: LedgerProcess, platform: Platform, backups: Backups, pool: asyncpg.Pool
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await platform.until(session_id, lambda view: view.status == "ready")
    backups.take()
    for offset in range(5):
        await runner.delta("m", "x", offset)
    await _turn(platform, session_id, runner, 1)
    assert ledger.stop() == 0
    backups.restore()
    seq = await runner.sandbox(sandbox.SandboxLost(epoch=1, kind="gone", detail="restored"))
    with pytest.raises(LogBehind, match=f"at sequence {seq} something else has been written"):
        await PutBack(platform.nc, pool, load()).run()


async def test_the_broker_swapped_for_an_older_one_under_a_running_ledger_ends_it_and_its_restart_heals(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    await _two_turns(platform, backups)
    before = await _log(platform.nc)
    backups.restore()
    await until(lambda: "The broker came back with a log" in ledger.log.read_text(), "the ledger has noticed")
    ledger.kill()
    ledger.start()
    assert await _log(platform.nc) == before


async def test_a_runner_hears_of_the_facts_put_back_whatever_became_of_its_consumer(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await platform.until(session_id, lambda view: view.status == "ready")
    backups.take()  # has no consumer yet
    await platform.prompt(session_id)
    name = subjects.runner_consumer(session_id)
    await ensure_consumer(platform.nc, name, [subjects.source(session_id, "fact")])
    turn_id, _ = await platform.dispatched(session_id)
    assert ledger.stop() == 0
    backups.restore()
    ledger.start()
    heard: list[str] = []

    async def handle(delivery: Delivery) -> None:
        heard.append(delivery.subject.rpartition(".")[2])
        await delivery.acknowledge()

    reading = asyncio.create_task(read_durable(platform.nc, name, handle))
    await until(lambda: "turn_dispatched" in heard, "the runner has its turn")
    reading.cancel()
    await runner.play_turn(turn_id, "p")


async def test_an_event_sent_again_after_it_was_put_back_is_not_doubled(
    ledger: LedgerProcess, platform: Platform, backups: Backups
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await platform.until(session_id, lambda view: view.status == "ready")
    backups.take()
    titled = new_event(agent.SessionTitled(title="Once"), id=new_id(), session_id=session_id, now_ms=1, epoch=1)
    seq = await platform.outbox.put(encode(titled, source="/s"))
    await platform.until(session_id, lambda view: view.title == "Once")
    assert ledger.stop() == 0
    backups.restore()
    ledger.start()
    assert await platform.outbox.put(encode(titled, source="/s")) == seq
    assert await runner.agent(agent.SessionTitled(title="Next")) == seq + 1


async def test_events_that_share_an_id_are_both_put_back(
    ledger: LedgerProcess, platform: Platform, backups: Backups, pool: asyncpg.Pool
) -> None:
    session_id = await platform.create()
    last = (await PutBackLog(platform.nc).state()).last_seq
    assert ledger.stop() == 0
    payload = await pool.fetchval("SELECT payload FROM ledger.events ORDER BY seq LIMIT 1")
    rows = [(last + at, session_id, "fact.session_requested", payload) for at in (1, 2, 4)]
    await pool.executemany("INSERT INTO ledger.events VALUES ($1, $2, $3, $4)", rows)
    await pool.execute("UPDATE ledger.checkpoints SET seq = $1", last + 5)
    await PutBack(platform.nc, pool, load()).run()
    found = await _log(platform.nc)
    assert [found[seq][1] == payload for seq, *_ in rows] == [True] * 3
    assert (await PutBackLog(platform.nc).state()).last_seq == last + 5


# -- an old database -------------------------------------------------------------------------------------------


async def _copy(settings: Settings, *, whole: bool) -> Settings:
    """Settings for a copy of the database as it is now, or for an empty one. Nobody may be connected to it."""
    base, _, query = settings.database_url.partition("?")
    server, _, name = base.rpartition("/")
    connection = await asyncpg.connect(f"{server}/postgres?{query}")
    copy = f"t{new_id().lower()}"
    await connection.execute(f"CREATE DATABASE {copy}" + (f" TEMPLATE {name}" if whole else ""))
    await connection.close()
    return replace(settings, database_url=f"{server}/{copy}?{query}")


async def test_an_empty_database_is_folded_again_from_the_log(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    await _turn(platform, session_id, await platform.boot(session_id), 1)
    view, page = await platform.session(session_id), await platform.messages(session_id)
    assert ledger.stop() == 0
    fresh = LedgerProcess(await _copy(ledger.settings, whole=False), "fresh")
    fresh.start()
    try:
        assert await platform.session(session_id) == view
        assert await platform.messages(session_id) == page
        await rebuild.verify(fresh.settings)
        assert "events_lost_for_good" not in fresh.log.read_text()
    finally:
        fresh.kill()


async def test_an_old_database_catches_up_with_the_log(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await _turn(platform, session_id, runner, 1)
    assert ledger.stop() == 0
    old = LedgerProcess(await _copy(ledger.settings, whole=True), "old")
    ledger.start()
    await _turn(platform, session_id, runner, 2)
    view, page = await platform.session(session_id), await platform.messages(session_id)
    assert ledger.stop() == 0
    old.start()
    try:
        assert await platform.session(session_id) == view
        assert await platform.messages(session_id) == page
        await _turn(platform, session_id, runner, 3)
        await rebuild.verify(old.settings)
    finally:
        old.kill()


async def test_events_that_neither_log_nor_archive_has_are_named(ledger: LedgerProcess, platform: Platform) -> None:
    await platform.create()
    assert ledger.stop() == 0
    last = (await PutBackLog(platform.nc).state()).last_seq
    purge = msgspec.json.encode({"seq": last + 1})
    await platform.nc.request(f"$JS.API.STREAM.PURGE.{subjects.STREAM}", purge, timeout=5)
    fresh = LedgerProcess(await _copy(ledger.settings, whole=False), "fresh")
    fresh.start()
    try:
        said = [line for line in fresh.log.read_text().splitlines() if "events_lost_for_good" in line]
        assert len(said) == 1
        assert (msgspec.json.decode(said[0])["first"], msgspec.json.decode(said[0])["last"]) == (1, last)
        await platform.create()
    finally:
        fresh.kill()


# -- the parts -------------------------------------------------------------------------------------------------


def test_every_sequence_gets_its_event_or_a_filler_that_no_reader_folds() -> None:
    events = [EventRow(7, "S", "fact.a", b"{}"), EventRow(9, "S", "agent.b", b"{}")]
    put = list(messages(events, 5, 11))
    assert [message.seq for message in put] == [6, 7, 8, 9, 10, 11]
    assert [message.seq for message in put if not message.is_filler] == [7, 9]
    assert not any(is_folded(message.subject) for message in put if message.is_filler)
    assert put[1].subject == subjects.event("S", "fact", "a")


@pytest.mark.parametrize(("first_seq", "checkpoint", "lost"), [(1, 0, None), (8, 7, None), (9, 7, (8, 8))])
def test_lost_is_what_lies_between_archive_and_log(first_seq: int, checkpoint: int, lost: object) -> None:
    assert lost_for_good(first_seq, checkpoint) == lost


async def test_the_ledgers_own_credentials_are_enough(tmp_path: Path, database_url: str) -> None:
    now = int(time.time())
    operator, system, account = (
        credentials.key_from_entropy(role, os.urandom(32)) for role in ("operator", "account", "account")
    )
    trust = credentials.trust(operator=operator, system=system, account=account, now=now)
    permissions = credentials.service_permissions("session-ledger")
    creds = tmp_path / "ledger.creds"
    creds.write_text(credentials.creds(account, "ledger", permissions, entropy=os.urandom(32), now=now))
    event = new_event(agent.SessionTitled(title="x"), id=new_id(), session_id="S", now_ms=1, epoch=1)
    payload = encode(event, source="/s").payload
    pool, store = await open_store(database_url)
    await store.checkpoints(range(subjects.SHARDS))
    await pool.execute("INSERT INTO ledger.events VALUES (3, 'S', 'agent.session_titled', $1)", payload)
    await pool.execute("UPDATE ledger.checkpoints SET seq = 5")
    with BrokerProcess(tmp_path / "guarded", trust) as guarded:
        nc = await guarded.connect(creds=creds)
        await broker.ensure_stream(nc)
        assert await PutBack(nc, pool, load()).run() == 5
        stored = await PutBackLog(nc).at(3)
        assert stored is not None
        assert stored.payload == payload
        await broker.close(nc)
    await pool.close()
