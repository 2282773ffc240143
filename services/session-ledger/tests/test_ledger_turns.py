"""Claims about prompt modes, the queue, and what a turn is made of. Pure, like the decisions."""

import pytest
from valet_protocol.errors import Conflict, NotFound, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import AbortTurn, EditPrompt, ReorderQueue, TerminateSession, WithdrawPrompt
from valet_session_ledger import limits
from valet_session_ledger.decide import Known, accepted, decide
from valet_session_ledger.react import next_due
from valet_session_ledger.story import Story, kinds, ready, running


def _turn(decided: list[Data]) -> facts.TurnDispatched:
    (turn,) = [data for data in decided if isinstance(data, facts.TurnDispatched)]
    return turn


def _queue(story: Story) -> list[str]:
    return [prompt.prompt_id for prompt in story.s.queue]


def _next(story: Story) -> facts.TurnDispatched:
    story.end()
    return _turn(story.settle())


# -- the queue -------------------------------------------------------------------------------------------------


def test_an_edited_prompt_has_its_turn_with_the_new_text() -> None:
    story = running()
    story.prompt("p2", "old")
    story.do(EditPrompt(session_id="S", user="ada", prompt_id="p2", content="new"))
    assert _next(story).content == "new"


def test_a_withdrawn_prompt_never_becomes_a_turn() -> None:
    story = running()
    story.prompt("p2")
    withdraw = WithdrawPrompt(session_id="S", user="ada", prompt_id="p2")
    assert kinds(story.do(withdraw)) == ["PromptWithdrawn"]
    assert story.do(withdraw) == []
    story.end()
    assert story.settle() == []


def test_prompts_have_their_turns_in_the_order_they_were_put_in() -> None:
    story = running()
    for name in ("p2", "p3", "p4"):
        story.prompt(name)
    story.do(ReorderQueue(session_id="S", user="ada", prompt_ids=["p4", "p1", "p2", "p4"]))  # p1 has its turn
    assert _queue(story) == ["p4", "p2", "p3"]
    assert story.do(ReorderQueue(session_id="S", user="ada", prompt_ids=["p4", "p2"])) == []


def test_an_order_with_a_prompt_that_was_never_given_changes_nothing() -> None:
    story = running()
    for name in ("p2", "p3"):
        story.prompt(name)
    order = ReorderQueue(session_id="S", user="ada", prompt_ids=["p3", "stranger"])
    with pytest.raises(NotFound, match="'stranger'"):
        story.do(order)
    assert _queue(story) == ["p2", "p3"]
    # one the state has forgotten is one that waits no more
    assert kinds(decide(story.state, order, now_ms=1, known=Known(prompts=frozenset(["stranger"])))) == [
        "QueueReordered"
    ]


def test_a_prompt_that_has_its_turn_can_be_changed_no_more() -> None:
    story = running()
    for change in (
        EditPrompt(session_id="S", user="ada", prompt_id="p1", content="x"),
        WithdrawPrompt(session_id="S", user="ada", prompt_id="p1"),
    ):
        with pytest.raises(Conflict) as refusal:
            story.do(change)
        assert refusal.value.code == "not_waiting"
    with pytest.raises(NotFound):
        story.do(WithdrawPrompt(session_id="S", user="ada", prompt_id="never"))


@pytest.mark.parametrize("kind", ["command", "shell", "review"])
def test_only_prompts_can_steer_or_be_collected(kind: str) -> None:
    story = ready()
    for mode in ("steer", "collect"):
        with pytest.raises(Unprocessable) as refusal:
            story.prompt(kind=kind, mode=mode)
        assert refusal.value.code == "mode_not_possible"
    story.prompt(kind=kind)
    assert _turn(story.settle()).kind == kind


def test_everything_a_prompt_says_is_in_its_turn() -> None:
    story = ready()
    file = facts.Attachment(attachment_id="a", name="a.png", mime="image/png", bytes=1, sha256="x")
    fields = {
        "model": "m/one",
        "fallbacks": ["m/two"],
        "variant": "high",
        "attachments": [file],
        "author_name": "Ada",
        "author_email": "ada@example.org",
        "channel": "slack:x",
    }
    story.prompt(**fields)  # type: ignore[arg-type]
    turn = _turn(story.settle())
    assert {name: getattr(turn, name) for name in fields} == fields
    with pytest.raises(Unprocessable, match="used before"):
        story.prompt(**{**fields, "attachments": []})  # type: ignore[arg-type]


# -- collect ---------------------------------------------------------------------------------------------------


def test_prompts_collected_within_a_moment_become_one_turn() -> None:
    story = ready()
    for number in range(3):
        story.prompt(f"p{number}", f"part {number}", mode="collect")
        assert story.settle() == []
        story.now += 1000
    assert next_due(story.s) == story.now - 1000 + limits.COLLECT_QUIET_MS
    story.now += 500
    turn = _turn(story.settle())
    assert (turn.prompt_id, turn.prompt_ids) == ("p0", ["p0", "p1", "p2"])
    assert turn.content == "part 0\n\npart 1\n\npart 2"
    assert [accepted(story.s, name, 1).status for name in ("p0", "p2")] == ["dispatched", "dispatched"]


def test_prompts_that_never_stop_coming_are_not_collected_for_ever() -> None:
    story = ready()
    begun = story.now
    for number in range(20):
        story.prompt(f"p{number}", mode="collect")
        if story.settle():
            break
        story.now += 1000
    assert story.now - begun == limits.COLLECT_LONGEST_MS


def test_prompts_of_different_people_or_conversations_are_not_collected_into_one() -> None:
    story = ready()
    story.prompt("p1", mode="collect")
    story.prompt("p2", mode="collect", channel="slack:x")
    story.prompt("p3", mode="collect", model="m/other")
    story.now += limits.COLLECT_LONGEST_MS
    for name in ("p1", "p2", "p3"):
        turn = _turn(story.settle())
        assert (turn.prompt_id, turn.prompt_ids) == (name, [])
        story.start()
        story.end()


def test_collected_prompts_that_are_too_long_together_become_several_turns() -> None:
    story = ready()
    half = "x" * (limits.COLLECTED_CHARACTERS * 2 // 3)
    story.prompt("p1", half, mode="collect")
    story.prompt("p2", half, mode="collect")
    story.now += limits.COLLECT_LONGEST_MS
    assert _turn(story.settle()).prompt_ids == []
    assert _queue(story) == ["p2"]


# -- steer -----------------------------------------------------------------------------------------------------


def test_a_steering_prompt_goes_into_the_turn_that_runs() -> None:
    story = running()
    story.prompt("waits")
    story.prompt("p2", "left!", mode="steer")
    (steered,) = story.settle()
    assert isinstance(steered, facts.PromptSteered)
    assert (steered.prompt_id, steered.content) == ("p2", "left!")
    assert accepted(story.s, "p2", 1).status == "queued"
    with pytest.raises(Conflict, match="waits no more"):
        story.do(WithdrawPrompt(session_id="S", user="ada", prompt_id="p2"))
    story.taken("p2", "delivered")
    assert accepted(story.s, "p2", 1).status == "dispatched"
    assert _next(story).prompt_id == "waits"


def test_a_steering_prompt_waits_for_the_start_of_a_turn_that_was_dispatched() -> None:
    story = ready()
    story.prompt()
    story.settle()
    story.prompt("p2", mode="steer")
    assert story.settle() == []
    story.start()
    assert kinds(story.settle()) == ["PromptSteered"]


def test_a_steering_prompt_while_nothing_runs_goes_before_the_others() -> None:
    story = Story()
    story.settle()
    for name, mode in (("p1", "queue"), ("p2", "steer"), ("p3", "steer")):
        story.prompt(name, mode=mode)
    assert _queue(story) == ["p2", "p3", "p1"]


def test_a_steering_prompt_of_another_conversation_does_not_go_into_this_one() -> None:
    story = running()
    story.prompt("p2", mode="steer", channel="slack:x")
    assert story.settle() == []
    assert _next(story).prompt_id == "p2"


def test_a_prompt_that_missed_its_turn_is_the_next_one_and_is_not_offered_again() -> None:
    story = running()
    story.prompt("waits")
    story.prompt("p2", mode="steer")
    story.settle()
    story.taken("p2", "missed")
    assert story.settle() == []
    turn = _next(story)
    assert (turn.prompt_id, turn.steered) == ("p2", False)


def test_a_refused_prompt_interrupts_the_turn_and_is_the_next_one() -> None:
    story = running()
    story.prompt("waits")
    story.prompt("p2", mode="steer")
    story.settle()
    story.taken("p2", "refused")
    (stop,) = story.settle()
    assert isinstance(stop, facts.TurnInterruptRequested)
    assert (stop.reason, stop.by) == ("steer", "")
    assert _next(story).prompt_id == "p2"


def test_a_prompt_whose_fate_is_unknown_says_so_when_it_is_dispatched() -> None:
    story = running()
    story.prompt("waits")
    story.prompt("p2", mode="steer")
    story.settle()
    turn = _next(story)
    assert (turn.prompt_id, turn.steered) == ("p2", True)
    story.start()
    story.prompt("p3", mode="steer")
    assert [data.prompt_id for data in story.settle() if isinstance(data, facts.PromptSteered)] == ["p3"]


def test_nothing_is_steered_into_a_turn_that_is_being_stopped() -> None:
    story = running()
    story.do(AbortTurn(session_id="S", user="ada"))
    story.prompt("p2", mode="steer")
    assert story.settle() == []
    assert _next(story).prompt_id == "p2"


def test_nothing_is_steered_into_a_shell_command() -> None:
    story = ready()
    story.prompt("p1", kind="shell")
    story.settle()
    story.start()
    story.prompt("p2", mode="steer")
    assert story.settle() == []


def test_what_was_being_steered_when_the_session_ended_is_dropped() -> None:
    story = running()
    story.prompt("p2", mode="steer")
    story.settle()
    story.do(TerminateSession(session_id="S", user="ada"))
    story.settle()
    assert (_queue(story), accepted(story.s, "p2", 1).status) == ([], "done")
