"""Ten thousand connections of clients, each cut anywhere: nothing lost, nothing doubled.

Bug class: an off-by-one between history and live, a frame taken for whole that was not, a mark that moves a cursor.

Real are the broker, the event bus process, the sockets, their hand-over and every byte. Stand-ins are the ledger (which
says that a user may watch, and has the archive), and api, which would hand the connections over.

`VALET_TEST_CUTS=200000 VALET_TEST_SEED=7 uv run pytest tests/survive/test_cuts.py -s --timeout 3600` is a longer run.
"""

import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness.raw_clients import Follower, Got, SseFollower, WsFollower
from nats.aio.client import Client as Broker
from valet_event_bus.testing import Bus
from valet_protocol import codec, subjects
from valet_protocol.events.agent import MessageCompleted, TextCompleted, Tokens, ToolUpdated
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import new_id
from valet_protocol.requests import ArchivedEvent, ArchivePage, GetSession, ReadArchive, SessionView
from valet_service import broker, rpc
from valet_service.log_reader import LogReader
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

CUTS = int(os.environ.get("VALET_TEST_CUTS", "10000"))
SEED = int(os.environ.get("VALET_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))

SHARED = 6
"""Sessions with many clients."""
LONELY = 4
"""Sessions with one: the event bus forgets them whenever that is cut."""
BACKLOG = 40
"""Messages in each session before the first client comes: some 500 events, so that early cuts are all in history."""
SSE_CLIENTS = 26
WS_CLIENTS = 20
WATCHED_BY_WS = 3
LONGEST = 0.25
"""Seconds a connection lives at most once it is live."""
LULL = 0.05
"""Seconds of silence after which a live connection is cut although it was to get more bytes."""
ANSWER = 20.0
"""Seconds for history and the mark to come, on a machine that is busy with other tests."""
PURGE_AFTER = 5.0
"""Seconds after most messages are complete; by then the event bus has read their deltas, on a busy machine too."""
HASTY = 0.3
"""Share of the messages whose deltas are purged at once, so that they vanish under those who read them."""


class Writer:
    """What runners would write: messages that stream, are completed, and lose their deltas."""

    def __init__(self, nc: Broker, outbox: Outbox, rng: random.Random) -> None:
        self._nc = nc
        self._outbox = outbox
        self._rng = rng
        self._number = 0
        self.sessions = [new_id() for _ in range(SHARED + LONELY)]
        self.archive: dict[str, list[tuple[int, bytes]]] = {session: [] for session in self.sessions}
        """Every event that stays, as the ledger would have it."""
        self.hasty: set[str] = set()
        """Parts whose deltas may be missed by clients that follow live."""

    async def message(self, session: str, pause: float = 0.0) -> str:
        """A whole message; its id."""
        self._number += 1
        message, part, offset, text = f"m{self._number}", f"p{self._number}", 0, ""
        for _ in range(self._rng.randrange(12)):
            chunk = "".join(self._rng.choices("abc \né✓", k=self._rng.randrange(1, 60)))
            delta = Delta(message_id=message, part_id=part, offset=offset, text=chunk)
            offset, text = offset + len(chunk), text + chunk
            await self._put(session, delta, "delta.text")
            await asyncio.sleep(pause)
        if self._rng.random() < 0.3:
            output = "x" * self._rng.choice([0, 100, 5_000, 40_000])
            tool = ToolUpdated(
                message_id=message, part_id=f"{part}t", call_id="c", tool="bash", status="completed", output=output
            )
            await self._put(session, tool)
        await self._put(session, TextCompleted(message_id=message, part_id=part, kind="text", text=text))
        await self._put(session, MessageCompleted(message_id=message, text=text))
        return message

    async def run(self, session: str, stop: asyncio.Event) -> None:
        purges: list[asyncio.Task[None]] = []
        while not stop.is_set():
            message = await self.message(session, pause=self._rng.random() * 0.06)
            hasty = self._rng.random() < HASTY
            if hasty:
                self.hasty.add(f"p{message[1:]}")
            purges.append(asyncio.create_task(self._purge(session, message, 0.0 if hasty else PURGE_AFTER)))
        await asyncio.gather(*purges)

    async def backlog(self) -> None:
        """What there is before the first client comes; the older part is only in the archive."""
        await asyncio.gather(*(self._backlog(session) for session in self.sessions))
        middle = self.archive[self.sessions[0]][BACKLOG][0]
        await self._nc.jetstream().purge_stream(subjects.STREAM, seq=middle)

    async def _backlog(self, session: str) -> None:
        for _ in range(BACKLOG):
            message = await self.message(session)
            if self._rng.random() < 0.8:
                await self._purge(session, message, 0.0)

    async def read_archive(self, request: ReadArchive) -> ArchivePage:
        """Part of the ledger's stand-in."""
        found = [line for line in self.archive[request.session_id] if request.after < line[0] < request.before]
        items = [ArchivedEvent(seq=seq, event=msgspec.Raw(payload)) for seq, payload in found[: request.limit]]
        return ArchivePage(items=items, complete=len(found) <= request.limit)

    def lasting(self, session: str) -> list[tuple[int, str, str]]:
        """What every client must have in the end."""
        events = [(seq, codec.decode_envelope(payload)) for seq, payload in self.archive[session]]
        return [(seq, event.type, event.id) for seq, event in events]

    async def _put(self, session: str, data: Data, kind: str = "") -> None:
        if kind:
            event = Event(id=new_id(), type=kind, session_id=session, time_ms=1_700_000_000_000, data=data)
        else:
            event = codec.new_event(data, id=new_id(), session_id=session, now_ms=1_700_000_000_000)
        outgoing = codec.encode(event, source="/test")
        seq = await self._outbox.put(outgoing)
        if not kind:
            self.archive[session].append((seq, outgoing.payload))

    async def _purge(self, session: str, message: str, after: float) -> None:
        await asyncio.sleep(after)
        await self._nc.jetstream().purge_stream(subjects.STREAM, subject=subjects.deltas_of(session, message))


class Cuts:
    """How many there are to be, and where they fell."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.where: Counter[str] = Counter()

    def note(self, follower: Follower) -> None:
        self.where["live" if follower.live else "in history" if follower.rest else "before or between frames"] += 1
        self.where["inside a frame"] += bool(follower.rest)


async def be_cut(follower: Follower, cuts: Cuts, rng: random.Random) -> None:
    """Connect and be cut, again and again."""
    while cuts.left > 0:
        cuts.left -= 1
        await follower.connect()
        await _until_the_cut(follower, cuts, rng)
        cuts.note(follower)
        follower.cut(rng)
        if rng.random() < 0.1:
            await asyncio.sleep(rng.random())  # away for a while: the next time there is history again


async def _until_the_cut(follower: Follower, cuts: Cuts, rng: random.Random) -> None:
    way = rng.choices(["early", "bytes", "mark", "live"], [1, 9, 4, 6])[0]
    if way == "early":
        await asyncio.sleep(rng.random() * 0.01)
    elif way == "bytes":  # anywhere, the beginning as likely as any later stretch
        await _read(follower, int(2 ** rng.uniform(0, 18)))
    else:
        while not follower.live:  # in small pieces, so that what follows the mark is not taken with it
            await _read(follower, rng.randrange(1, 500) if follower.connection > 3 else 65_536)
        if way == "mark":
            cuts.where["at the mark"] += 1
            await _read(follower, rng.randrange(60))
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST * rng.random()):
                    while True:
                        await follower.read(rng.randrange(1, 65_536))


async def _read(follower: Follower, left: int) -> None:
    """So many bytes; fewer when nothing happens in the session for a moment."""
    while left:
        try:
            async with asyncio.timeout(LULL if follower.live else ANSWER):
                left -= await follower.read(left)
        except TimeoutError:
            assert follower.live, "no answer"
            return


async def finish(follower: Follower, ends: dict[str, int]) -> None:
    """Follow, uncut, until everything that stays has come."""
    await follower.connect()
    async with asyncio.timeout(30):
        while any(follower.cursor(session) < ends[session] for session in follower.got):
            await follower.read(65_536)
    follower.sock.close()


def texts_add_up(events: list[Got], hasty: set[str]) -> int:
    """Streamed chunks are pieces of their part's text. Of a part that was followed live from its beginning, on one
    connection, they are the whole text; the number of those. Others, and `hasty` ones, may lack what was purged."""
    chunks: dict[str, list[Got]] = defaultdict(list)
    whole = 0
    before: Got | None = None
    for event in events:
        if event.type.startswith("delta."):
            chunks[event.data["part_id"]].append(event)
            continue
        if event.type == "agent.text_completed":
            part = event.data["part_id"]
            text, pieces = event.data["text"], chunks.pop(part, [])
            for one in pieces:
                start = one.data["offset"]
                assert text[start : start + len(one.data["text"])] == one.data["text"]
            live = before is not None and before.live and before.connection == event.connection
            if live and part not in hasty:
                assert "".join(one.data["text"] for one in pieces) == text, f"chunks missing before {event.seq}"
                whole += bool(pieces)
        if event.type != "agent.tool_updated":
            before = event
    return whole


def lasting(events: list[Got]) -> list[tuple[int, str, str]]:
    return [(one.seq, one.type, one.id) for one in events if not one.type.startswith("delta.")]


async def the_log(nc: Broker) -> dict[str, list[tuple[int, str, str]]]:
    """Every event that stays, by session, read from the broker itself."""
    found: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    async with LogReader(nc, [subjects.EVERYTHING], start=1) as reader, asyncio.timeout(30):
        pending = reader.pending_at_start
        while pending:
            for entry in await reader.batch(1000):
                pending = entry.pending
                envelope = codec.decode_envelope(entry.payload)
                if not envelope.type.startswith("delta."):
                    found[envelope.subject].append((entry.seq, envelope.type, envelope.id))
    return found


@pytest.fixture
def nats() -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory(prefix="valet-cuts-") as folder, BrokerProcess(Path(folder)) as server:
        yield server


async def _everybody_may_watch(request: GetSession) -> SessionView:
    nothing = dict.fromkeys(("status_detail", "title", "created_at", "updated_at"), "")
    numbers = dict.fromkeys(("epoch", "cost", "turns", "seq"), 0)
    return msgspec.convert(
        {
            "id": request.session_id,
            "status": "ready",
            "owner": request.user,
            "repo": None,
            "branch": None,
            "model": "a/b",
            "tokens": msgspec.to_builtins(Tokens()),
            **nothing,
            **numbers,
        },
        SessionView,
    )


async def test_ten_thousand_cuts_lose_nothing_and_double_nothing(nats: BrokerProcess) -> None:
    print(f"\n{CUTS} cuts, VALET_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    began = time.monotonic()
    nc = await broker.connect(nats.url, name="test")
    await broker.ensure_stream(nc)
    await rpc.serve(nc, "rpc.ledger.*.get_session", GetSession, _everybody_may_watch, queue="ledger")
    stop = asyncio.Event()
    cuts = Cuts(CUTS)
    with tempfile.TemporaryDirectory(prefix="valet-bus-") as folder:
        bus = Bus(nats, Path(folder))
        async with Outbox(lambda: broker.connect(nats.url, name="outbox", reconnect=False)) as outbox:
            writer = Writer(nc, outbox, rng)
            await rpc.serve(nc, "rpc.ledger.*.read_archive", ReadArchive, writer.read_archive, queue="ledger")
            await writer.backlog()
            bus.start()
            try:
                shared, lonely = writer.sessions[:SHARED], writer.sessions[SHARED:]
                single = [shared[number % SHARED] for number in range(SSE_CLIENTS)] + lonely
                followers: list[Follower] = [SseFollower(bus, session, [session]) for session in single]
                followers += [
                    WsFollower(bus, f"ws-{number}", rng.sample(shared, WATCHED_BY_WS)) for number in range(WS_CLIENTS)
                ]
                writing = [asyncio.create_task(writer.run(session, stop)) for session in writer.sessions]
                seeds = [random.Random(rng.random()) for _ in followers]
                try:
                    await _together(be_cut(one, cuts, seed) for one, seed in zip(followers, seeds, strict=True))
                finally:
                    stop.set()
                await asyncio.gather(*writing)
                stored = await the_log(nc)
                log = {session: writer.lasting(session) for session in writer.sessions}
                ends = {session: events[-1][0] for session, events in log.items()}
                await _together(finish(follower, ends) for follower in followers)
            finally:
                bus.kill()
    await broker.close(nc)

    first = min(events[0][0] for events in stored.values())
    assert stored == {session: [one for one in events if one[0] >= first] for session, events in log.items()}
    whole = 0
    for follower in followers:
        for session, events in follower.got.items():
            assert lasting(events) == log[session]
            whole += texts_add_up(events, writer.hasty)
    print(f"{time.monotonic() - began:.0f} s, {sum(map(len, log.values()))} events, {whole} texts live, {cuts.where}")
    assert sum(follower.connection for follower in followers) == CUTS + len(followers)
    # the claim is only as good as where the cuts fell
    assert min(cuts.where[where] for where in ("live", "in history", "inside a frame", "at the mark")) > CUTS / 20
    assert whole > CUTS / 100


async def _together(work: Any) -> None:
    """All at once; the first failure ends them all."""
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
