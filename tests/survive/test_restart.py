"""Stopping and starting the whole platform."""

import signal
from pathlib import Path

import psutil
import pytest
from harness import checks, limits
from harness.platform import Model, Platform
from harness.waiting import until


@pytest.fixture
def own(tmp_path: Path, model: Model):
    platform = Platform(tmp_path / "d", model.url).start()
    yield platform
    if platform.process and platform.process.poll() is None:
        platform.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_leaves_no_process_and_a_start_finds_every_session_as_it_was(own: Platform, how: signal.Signals) -> None:
    session = own.create(title="kept")["id"]
    with own.follow(session) as follower:
        own.prompt(session, "write kept.txt treasure")
        follower.wait_type("agent.turn_ended")
    before = own.messages(session)
    running = own.own()
    assert running
    assert own.stop(how) == 0
    alive = [process for process in running if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert alive == []
    assert own.own() == []
    assert not (own.data_dir / "valet.json").exists()

    own.start()
    assert own.messages(session) == before
    view = own.session(session)
    assert (view["title"], view["status"]) == ("kept", "hibernated")
    with own.follow(session) as follower:
        own.prompt(session, "bash cat kept.txt")
        follower.wait(lambda _: follower.count("agent.turn_ended") == 2, what="a turn after the restart")
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
    assert "treasure" in outputs[-1]
    checks.rebuilt_equals_live(own)


def test_a_prompt_accepted_just_before_a_stop_is_answered_after_the_start(own: Platform) -> None:
    session = own.create()["id"]
    own.prompt(session, "say the first")
    own.prompt(session, "say the second")
    assert own.stop() == 0
    own.start()
    with own.follow(session) as follower:
        follower.wait(
            lambda _: follower.count("agent.turn_ended") + follower.count("fact.turn_interrupted") >= 2,
            what="both prompts to be ended",
        )
    assert "the second" in checks.assistant_text(own.messages(session))


def test_a_second_up_names_the_process_that_holds_the_data(own: Platform) -> None:
    assert own.process
    second = own.cli("up", "--port", "0", timeout=limits.READY)
    assert second.returncode == 1
    assert str(own.process.pid) in second.stdout + second.stderr
    assert "Traceback" not in second.stderr


def test_down_stops_it_from_outside(own: Platform) -> None:
    assert own.process
    down = own.cli("down", timeout=limits.STOP)
    assert down.returncode == 0, down.stderr
    assert own.process.wait(limits.STOP) == 0
    assert own.own() == []


def test_after_the_supervisor_is_killed_the_next_start_goes_on_with_the_turn(own: Platform) -> None:
    session = own.create()["id"]
    with own.follow(session) as follower:
        own.prompt(session, "slow 100 words")
        follower.wait(lambda _: follower.count("delta.text") >= 5, what="the text to stream")
    assert own.process
    processes, inside = own.processes(), own.sandbox(session)
    services = [process for process in processes if process not in inside and _name(process) != "bwrap"]
    sandbox = [
        own.find(word, among=inside) for word in ("valet_runner", "opencode", "valet_gateway", "valet_processes")
    ]
    own.process.kill()
    own.process.wait(limits.STOP)
    until(
        lambda: not any(map(_runs, services)),
        limits.STOP,
        "the services of the killed platform to end",
    )
    own.start()
    with own.follow(session) as follower:
        ended = follower.wait(
            lambda event: event.type in ("agent.turn_ended", "fact.turn_interrupted"), what="the turn to end"
        )
        assert (ended.type, ended.data.get("status")) == ("agent.turn_ended", "completed")
        assert follower.count("fact.runner_attached") == 1, "another sandbox came in its place"
        assert follower.count("fact.turn_dispatched") == 1
        own.prompt(session, "say back again")
        follower.wait_type("agent.turn_ended", after=ended.seq)
        checks.exactly_once(own, session, follower)
    first, second = [message for message in own.messages(session) if message["role"] == "assistant"]
    assert len(first["text"].split()) >= 100
    assert "back again" in second["text"]
    assert all(map(_runs, sandbox)), "the sandbox was not taken up again"

    own.process.kill()
    own.process.wait(limits.STOP)
    assert own.cli("down", timeout=limits.STOP).returncode == 0
    assert own.own() == [], "`valet down` leaves what a killed platform has left"


def _name(process: psutil.Process) -> str:
    """Empty for one that has ended: some of those listed live for a moment only."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
