"""Claims about silence that the ledger could not have heard broken: a real broker that is stopped; limits are short."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event
from valet_service import broker
from valet_service.testing import BrokerProcess
from valet_session_ledger import limits
from valet_session_ledger.put_back_log import PutBackLog
from valet_session_ledger.react import next_due, react
from valet_session_ledger.reactor import Reactor
from valet_session_ledger.sessions import Live
from valet_session_ledger.sight import Sight
from valet_session_ledger.story import running

WAIT = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def condition(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not holds():  # noqa: ASYNC110 - processes and clocks set no event
            await asyncio.sleep(0.02)


def test_silence_counts_from_when_the_log_can_be_seen_again() -> None:
    story = running()
    story.now += 10 * limits.SILENT_MS  # an outage: nobody knows what the runner said
    seen = story.now
    assert react(story.s, story.now, seen) == []
    assert next_due(story.s, seen) == seen + limits.SILENT_MS
    # what it had said comes, and later than that it is silent
    story.runner(agent.StatusChanged(status="busy"))
    (stop,) = react(story.s, seen + limits.SILENT_MS, seen)
    assert isinstance(stop, facts.TurnInterruptRequested)
    assert stop.reason == "silent"


def test_a_runner_is_not_replaced_for_a_turn_it_began_unheard() -> None:
    story = running()
    story.lose()
    story.settle()
    story.boot()
    story.prompt("p2")
    story.settle()
    assert story.s.turn
    assert story.s.turn.started_epoch is None
    story.now += 10 * limits.SILENT_MS
    assert react(story.s, story.now, story.now) == []
    assert [type(data) for data in react(story.s, story.now, 0)] == [facts.SandboxRequested]


def test_a_gap_between_looks_ends_the_sight_whatever_made_it() -> None:
    clock = SimpleNamespace(now=1_000)

    async def look() -> None: ...

    sight = Sight(look, lambda: clock.now)
    for clock.now in range(1_000, 200_000, limits.SIGHT_GAP_MS):
        sight.saw(clock.now)
    assert sight.since_ms(clock.now) == 1_000
    # the process was stopped, or the machine slept: timers come before the next look
    clock.now += limits.SIGHT_GAP_MS + 1
    assert sight.since_ms(clock.now) == clock.now
    sight.saw(clock.now)
    assert sight.since_ms(clock.now + 10_000) == clock.now


async def test_a_broker_that_was_away_for_longer_than_silence_lasts_ends_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SIGHT_EVERY", 0.05)
    monkeypatch.setattr(limits, "SIGHT_GAP_MS", 1_000)
    monkeypatch.setattr(limits, "SILENT_MS", 3_000)
    story = running()
    assert story.s.turn
    server = BrokerProcess(tmp_path)
    server.start()
    nc = await broker.connect(server.url, name="test")
    await broker.ensure_stream(nc)
    decided: list[Event] = []

    class Appender:
        async def append(self, event: Event, expected: int) -> int:
            decided.append(event)
            return expected + 1

    sight = Sight(PutBackLog(nc).state, now_ms)
    looking = asyncio.create_task(sight.run())
    reactor = Reactor(cast(Any, None), cast(Any, Appender()), now_ms, sight.since_ms)
    reactor.start()
    live = Live("S", story.s)
    try:
        server.kill()
        gone = now_ms()
        await condition(lambda: now_ms() - gone > 2 * limits.SILENT_MS)
        reactor.touched(live)  # a timer of before
        assert live.due_ms
        assert live.due_ms >= gone + limits.SILENT_MS
        assert not live.reacting
        server.start()
        back = now_ms()
        await condition(lambda: sight.since_ms(now_ms()) < now_ms() - 100)
        assert sight.since_ms(now_ms()) >= back
        reactor.touched(live)
        assert decided == []
        # the runner stays silent although it could be heard: then it hangs
        await condition(lambda: (reactor.touched(live) or True) and bool(decided))
        assert isinstance(decided[0].data, facts.TurnInterruptRequested)
        assert now_ms() >= back + limits.SILENT_MS
    finally:
        looking.cancel()
        server.kill()
        await broker.close(nc)
