"""Claims about lost sandboxes, failed ones, and a platform that stops. Pure, like the decisions."""

import pytest
from valet_protocol.errors import Conflict
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.requests import (
    AttachRunner,
)
from valet_session_ledger import limits
from valet_session_ledger.decide import attached
from valet_session_ledger.react import is_at_rest, next_due, react
from valet_session_ledger.stamp import stamp
from valet_session_ledger.story import Story, kinds, ready, running

# -- loss ------------------------------------------------------------------------------------------------------


def test_a_turn_started_under_a_lost_epoch_is_interrupted_and_the_sandbox_recovered() -> None:
    story = running()
    story.lose()
    decided = story.settle()
    assert kinds(decided) == ["TurnInterrupted", "SandboxRequested"]
    assert isinstance(decided[1], facts.SandboxRequested)
    assert (decided[1].epoch, decided[1].reason, story.s.status) == (2, "recovery", "restoring")
    story.prompt("p2")
    story.boot()
    assert kinds(story.settle()) == ["TurnDispatched"]


def test_a_turn_that_was_not_started_is_left_for_the_next_runner() -> None:
    story = ready()
    story.prompt()
    story.settle()
    dispatched = story.s.turn
    assert dispatched
    story.lose()
    assert kinds(story.settle()) == ["SandboxRequested"]
    story.boot()
    assert story.settle() == []
    assert attached(story.s, 1).active_turn == dispatched.turn_id


def test_a_turn_that_ends_every_runner_is_given_up() -> None:
    story = ready()
    story.prompt()
    story.settle()
    for _ in range(limits.TURN_LOSSES - 1):
        story.lose()
        story.now += 60_000
        assert kinds(story.settle()) == ["SandboxRequested"]
        story.boot()
    story.lose()
    assert kinds(story.settle()) == ["TurnInterrupted", "SandboxRequested"]


def test_an_idle_session_that_lost_its_sandbox_comes_back_with_the_next_prompt() -> None:
    story = ready()
    story.lose()
    assert story.settle() == []
    assert story.s.status == "lost"
    story.prompt()
    (asked,) = story.settle()
    assert isinstance(asked, facts.SandboxRequested)
    assert (asked.epoch, asked.reason) == (2, "prompt")


def test_events_of_an_older_runner_do_not_count() -> None:
    story = running()
    story.lose()
    story.settle()
    story.boot()
    before = story.state
    story.runner(agent.SessionTitled(title="ghost"), epoch=1)
    assert story.state is before


def test_a_new_runner_means_that_the_older_ones_turn_is_over() -> None:
    story = running()
    story.happen(facts.SandboxRequested(epoch=2, reason="recovery", model="m/x", boot_deadline_ms=9_000_000))
    story.do(AttachRunner(session_id="S", epoch=2, runner_version="t"))
    decided = story.settle()
    assert kinds(decided) == ["TurnInterrupted"]


def test_a_stale_runner_is_told_that_it_was_replaced() -> None:
    story = running()
    story.lose()
    story.settle()
    with pytest.raises(Conflict) as refusal:
        story.do(AttachRunner(session_id="S", epoch=1, runner_version="t"))
    assert refusal.value.code == "replaced"


def test_a_sandbox_that_never_comes_up_fails_the_session_after_some_attempts() -> None:
    story = Story()
    story.settle()
    for attempt in range(limits.RECOVERIES):
        due = next_due(story.s)
        assert due
        story.now = due
        (asked,) = story.settle()
        assert isinstance(asked, facts.SandboxRequested)
        assert (asked.epoch, asked.reason) == (attempt + 2, "recovery")
    due = next_due(story.s)
    assert due
    story.now = due
    assert kinds(story.settle()) == ["SessionFailed", "SandboxReleaseRequested"]
    assert story.s.status == "failed"


def test_recoveries_in_a_row_wait_longer_each_time_and_are_forgotten_when_one_is_ready() -> None:
    story = Story()
    story.settle()
    story.lose()
    assert kinds(story.settle()) == ["SandboxRequested"]
    story.lose()
    assert story.settle() == []
    assert next_due(story.s) == story.now + 2 * limits.RECOVERY_PAUSE_MS
    story.now += 2 * limits.RECOVERY_PAUSE_MS
    assert kinds(story.settle()) == ["SandboxRequested"]
    story.boot()
    assert story.s.recoveries == 0


@pytest.mark.parametrize("queued", [0, 1])
def test_a_clone_that_fails_fails_the_session_with_gits_own_words(queued: int) -> None:
    story = Story()
    story.settle()
    if queued:
        story.prompt()
    story.happen(sandbox.SandboxProvisioning(epoch=1, provider="t"))
    story.do(AttachRunner(session_id="S", epoch=1, runner_version="t"))
    story.runner(agent.BootFailed(stage="clone", detail="fatal: repository not found"))
    decided = story.settle()
    assert kinds(decided) == ["SessionFailed", "SandboxReleaseRequested"]
    assert isinstance(decided[0], facts.SessionFailed)
    assert (decided[0].code, story.s.detail) == ("clone_failed", "fatal: repository not found")
    assert (story.s.queue, is_at_rest(story.s)) == ((), True)
    with pytest.raises(Conflict, match="repository not found"):
        story.prompt("p9")


def test_a_sandbox_that_cannot_be_made_fails_the_session_unless_it_may_be_tried_again() -> None:
    story = Story()
    story.settle()
    story.happen(sandbox.SandboxFailed(epoch=1, detail="busy", retryable=True))
    assert kinds(story.settle()) == ["SandboxRequested"]
    story.happen(sandbox.SandboxFailed(epoch=2, detail="bwrap is missing"))
    assert kinds(story.settle()) == ["SessionFailed", "SandboxReleaseRequested"]


def test_a_sandbox_that_was_ended_without_our_asking_is_a_loss() -> None:
    story = running()
    story.happen(sandbox.SandboxTerminated(epoch=1, workspace_deleted=False))
    assert kinds(story.settle()) == ["TurnInterrupted", "SandboxRequested"]


# -- stopping and starting the platform ------------------------------------------------------------------------


def test_when_the_platform_stops_the_turn_is_over_and_queued_prompts_wait_for_the_next_start() -> None:
    story = running()
    story.prompt("p2")
    story.happen(sandbox.SandboxHibernated(epoch=1, reason="platform_stopped"))
    assert kinds(story.settle()) == ["TurnInterrupted"]
    assert story.s.status == "hibernated"
    story.now += limits.PLATFORM_STOP_HOLD_MS
    (asked,) = story.settle()
    assert isinstance(asked, facts.SandboxRequested)
    assert (asked.epoch, asked.reason) == (2, "prompt")
    story.boot()
    assert kinds(story.settle()) == ["TurnDispatched"]


def test_a_hibernated_session_comes_back_with_a_prompt_at_once() -> None:
    story = ready()
    story.happen(sandbox.SandboxHibernated(epoch=1, reason="platform_stopped"))
    assert story.settle() == []
    assert next_due(story.s) is None
    story.prompt()
    assert kinds(story.settle()) == ["SandboxRequested"]


def test_the_same_decision_has_the_same_id_wherever_it_is_made() -> None:
    story = ready()
    story.prompt()
    (decided,) = react(story.s, story.now)
    one, other = stamp("S", story.state, decided, 1), stamp("S", story.state, decided, 2)
    assert one.id == other.id
    assert one.turn == decided.turn_id  # type: ignore[attr-defined]
