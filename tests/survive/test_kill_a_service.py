"""kill -9 of every part of the control plane in the middle of a streaming turn.

Bug class: state that lives in one process only; a publish, a fetch or a reply that was under way and is forgotten.
"""

from collections.abc import Iterator

import psutil
import pytest
from harness import checks, limits
from harness.platform import Platform
from harness.waiting import until

PARTS = {
    "api": "valet_api",
    "event-bus": "valet_event_bus",
    "knowledge+automation": "valet_service.host",
    "session-ledger": "valet_session_ledger",
    "sandbox-controller": "valet_sandbox_controller",
    "portal": "valet_sandbox_controller.portal",
    "nats-server": "nats-server",
    "postgres": "postgres",
}


def process_of(platform: Platform, part: str) -> psutil.Process:
    if part == "sandbox-controller":
        among = [p for p in platform.processes() if "valet_sandbox_controller.portal" not in p.cmdline()]
        return platform.find(PARTS[part], among=among)
    return platform.find(PARTS[part], among=platform.processes())


@pytest.fixture(scope="module", autouse=True)
def _rebuilt(platform: Platform) -> Iterator[None]:
    """After all of the kills: the read models of every session are what a rebuild makes of the log."""
    yield
    checks.rebuilt_equals_live(platform)


@pytest.mark.parametrize("part", PARTS)
def test_the_turn_completes_and_every_client_has_every_event_once_when_killed(platform: Platform, part: str) -> None:
    session = platform.create(title=f"kill {part}")["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "slow 100 words")
        follower.wait(lambda _: follower.count("delta.text") >= 10, what="the text to stream")
        victim = process_of(platform, part)
        victim.kill()
        ended = follower.wait_type("agent.turn_ended")
        assert ended.data["status"] == "completed", ended.data
        until(lambda: platform.request("GET", "/ready").status_code == 200, limits.READY, "the platform to be whole")
        assert process_of(platform, part).pid != victim.pid
        # the next prompt works as if nothing had happened
        platform.prompt(session, "say still here")
        follower.wait_type("agent.turn_ended", after=ended.seq)
        checks.exactly_once(platform, session, follower)
    messages = platform.messages(session)
    assert len(messages[1]["text"].split()) >= 100
    assert "still here" in checks.assistant_text(messages)


@pytest.mark.parametrize("word", ["valet_runner", "opencode"])
def test_a_turn_whose_runner_or_agent_is_killed_ends_and_the_next_prompt_works(platform: Platform, word: str) -> None:
    session = platform.create(title=f"kill {word}")["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "slow 200 words")
        follower.wait(lambda _: follower.count("delta.text") >= 10, what="the text to stream")
        platform.find(word, among=platform.sandbox(session)).kill()
        ended = follower.wait(
            lambda event: event.type in ("agent.turn_ended", "fact.turn_interrupted"), what="the turn to end"
        )
        if ended.type == "agent.turn_ended":
            assert ended.data["status"] in ("completed", "interrupted")
        platform.prompt(session, "say alive again")
        follower.wait_type("agent.turn_ended", after=ended.seq)
        checks.exactly_once(platform, session, follower)
    assert "alive again" in checks.assistant_text(platform.messages(session))
