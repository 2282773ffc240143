"""Claims about a bridge that is on its own: OpenCode, the log and the clock are stand-ins."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from valet_protocol.events import agent, facts
from valet_runner import frames, limits, testing_bridge
from valet_runner.bridge import Bridge
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable
from valet_runner.testing_bridge import Opencode, Publisher


@pytest.fixture
def opencode() -> Opencode:
    return Opencode()


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


@pytest.fixture
def seconds() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def bridge(opencode: Opencode, publisher: Publisher, seconds: Iterator[int], tmp_path: Path) -> Bridge:
    return testing_bridge.bridge(opencode, publisher, home=tmp_path, clock=lambda: float(next(seconds)))


TURN = facts.TurnDispatched(turn_id="t", prompt_id="p", content="do", model="a/1", author="u")
STEER = facts.PromptSteered(turn_id="t", prompt_id="q", content="and this", author="u")


async def until(check: Any) -> None:
    async with asyncio.timeout(5):
        while not check():  # noqa: ASYNC110 - the stand-ins set no event
            await asyncio.sleep(0.001)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCH_EVERY", 0.001)
    monkeypatch.setattr(limits, "SETTLE_POLL", 0.001)


async def test_a_silent_turn_says_that_it_goes_on_as_long_as_opencode_says_so(
    bridge: Bridge, opencode: Opencode, publisher: Publisher, quick: None
) -> None:
    await bridge.dispatch(TURN, again=False)
    watch = asyncio.create_task(bridge.watch())
    try:
        await until(lambda: len(publisher.of(agent.StatusChanged)) >= 2)
        assert publisher.of(agent.StatusChanged)[-1] == agent.StatusChanged(status="busy")
        opencode.status = None
        said = len(publisher.of(agent.StatusChanged))
        await until(lambda: publisher.of(agent.TurnEnded))
        assert len(publisher.of(agent.StatusChanged)) - said <= 1
    finally:
        watch.cancel()


async def test_a_steering_prompt_that_opencode_refuses_is_said_to_be_refused(
    bridge: Bridge, opencode: Opencode, publisher: Publisher
) -> None:
    await bridge.dispatch(TURN, again=False)
    opencode.refuses = OpencodeRefused(409, "busy")
    await bridge.steer(STEER)
    await bridge.steer(STEER)
    refused = agent.PromptTaken(turn_id="t", prompt_id="q", outcome="refused")
    assert publisher.of(agent.PromptTaken) == [refused, refused]
    assert len(opencode.prompts) == 1


async def test_nothing_is_said_of_a_steering_prompt_that_nobody_knows_the_fate_of(
    bridge: Bridge, opencode: Opencode, publisher: Publisher
) -> None:
    await bridge.dispatch(TURN, again=False)
    opencode.refuses = OpencodeUnavailable("gone")
    await bridge.steer(STEER)
    assert publisher.of(agent.PromptTaken) == []


async def test_a_steering_prompt_comes_twice_and_is_given_once(
    bridge: Bridge, opencode: Opencode, publisher: Publisher
) -> None:
    await bridge.dispatch(TURN, again=False)
    await bridge.steer(STEER)
    await bridge.steer(STEER)
    assert len(opencode.prompts) == 2
    assert {item.outcome for item in publisher.of(agent.PromptTaken) if isinstance(item, agent.PromptTaken)} == {
        "delivered"
    }


async def test_a_steering_prompt_that_an_idle_opencode_passed_over_is_given_once_more(
    bridge: Bridge, opencode: Opencode, publisher: Publisher, quick: None
) -> None:
    await bridge.dispatch(TURN, again=False)
    (first,) = opencode.prompts
    opencode.listed = [_answer(first)]
    await bridge.steer(STEER)
    opencode.status = None
    await bridge.frame(frames.SessionIdle(session_id="ses"))
    await until(lambda: len(opencode.prompts) == 3)
    opencode.listed.append(_answer(opencode.prompts[2]))
    await until(lambda: publisher.of(agent.TurnEnded))
    ended = publisher.of(agent.TurnEnded)[0]
    assert isinstance(ended, agent.TurnEnded)
    assert ended.status == "completed"


async def test_a_conversation_that_cannot_be_listed_does_not_keep_its_turn_from_ending(
    bridge: Bridge, opencode: Opencode, publisher: Publisher, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bridge.dispatch(TURN, again=False)

    async def refuse(session: str) -> list[frames.Message]:
        raise OpencodeRefused(400, "Expected something else")

    monkeypatch.setattr(opencode, "messages", refuse)
    opencode.status = None
    answered = _answer(opencode.prompts[0])
    await bridge.frame(frames.MessageUpdated(info=answered.info))
    await bridge.frame(frames.SessionIdle(session_id="ses"))
    await until(lambda: publisher.of(agent.TurnEnded))


def _answer(user_message: str) -> frames.Message:
    info = frames.Info(
        id=f"{user_message}z",
        role="assistant",
        session_id="ses",
        parent_id=user_message,
        finish="stop",
        time=frames.Span(created=1, completed=2),
    )
    return frames.Message(info=info)


async def test_an_end_that_comes_while_opencode_is_being_looked_at_is_not_overlooked(
    bridge: Bridge, opencode: Opencode, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SETTLE_POLL", 0.001)
    await bridge.dispatch(TURN, again=False)
    await bridge.steer(STEER)  # makes it look: OpenCode is busy
    looking, go_on = asyncio.Event(), asyncio.Event()
    listed = opencode.messages

    async def slowly(session: str) -> list[frames.Message]:
        looking.set()
        await go_on.wait()
        return await listed(session)

    monkeypatch.setattr(opencode, "messages", slowly)
    await asyncio.wait_for(looking.wait(), 5)
    answer = frames.Info(
        id="msg_z",
        session_id="ses",
        role="assistant",
        parent_id=opencode.prompts[-1],
        finish="stop",
        time=frames.Span(created=0, completed=1),
    )
    opencode.listed = [frames.Message(info=answer)]
    opencode.status = None
    await bridge.frame(frames.SessionStatus(session_id="ses", status=frames.Status(type="idle")))
    go_on.set()
    await until(lambda: publisher.of(agent.TurnEnded))  # without a watch, which would look half a minute later
