"""The schedule is a function of its seed, and leaves nothing out."""

from collections import Counter

from valet_local.chaos import limits, plan


def test_the_same_seed_is_the_same_schedule_and_another_one_is_not() -> None:
    one = plan.schedule(7, seconds=300, sessions=4)
    assert plan.schedule(7, seconds=300, sessions=4) == one
    assert plan.schedule(8, seconds=300, sessions=4) != one


def test_every_part_is_killed_and_stopped_and_every_link_is_cut_before_anything_comes_again() -> None:
    faults = plan.schedule(1, seconds=1200, sessions=4).faults
    first = [(fault.kind, fault.target) for fault in faults[: len([*plan.every_fault()])]]
    assert sorted(first) == sorted(plan.every_fault())
    for part in (*plan.PROCESSES, *plan.SANDBOX, *plan.INSIDE):
        assert ("kill", part) in first
        assert ("pause", part) in first


def test_two_minutes_are_enough_to_kill_every_part() -> None:
    for seed in range(1, 6):
        killed = {fault.target for fault in plan.schedule(seed, seconds=100, sessions=4).faults if fault.kind == "kill"}
        assert killed == {*plan.PROCESSES, *plan.SANDBOX, *plan.INSIDE}, seed


def test_pauses_are_as_long_as_they_are_said_to_be_and_end_with_the_run() -> None:
    planned = plan.schedule(3, seconds=600, sessions=2)
    shortest, longest = limits.PAUSE
    for fault in planned.faults:
        assert fault.at + fault.seconds < planned.seconds
        if fault.kind in ("pause", "freeze"):
            assert shortest <= fault.seconds <= longest


def test_every_kind_of_action_is_tried_and_no_word_is_used_twice() -> None:
    planned = plan.schedule(1, seconds=1800, sessions=4)
    kinds = Counter(act.kind for act in planned.acts)
    assert set(kinds) == {*plan.WEIGHTS, "fork", "spawn"}
    tokens = [token for act in planned.acts for token in act.tokens]
    assert len(tokens) == len(set(tokens))


def test_every_session_has_a_prompt_before_the_first_fault() -> None:
    planned = plan.schedule(5, seconds=100, sessions=6)
    first = planned.faults[0].at
    assert {act.session for act in planned.acts if act.kind == "prompt" and act.at < first} == set(range(6))


def test_the_words_for_people_name_every_action_and_fault() -> None:
    planned = plan.schedule(2, seconds=60, sessions=2)
    lines = plan.in_words(planned).splitlines()
    assert len(lines) == 1 + len(planned.acts) + len(planned.faults)
