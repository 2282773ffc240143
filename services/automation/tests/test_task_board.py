"""Claims about what may be done with the tasks of a board."""

import pytest
from valet_automation import limits
from valet_automation.board import Task, changed, check
from valet_automation.errors import BlockersInACircle, NothingToChange, TaskWaits, TooManyBlockers, TooManyTasks
from valet_protocol.tools.tasks import UpdateTask

BUILD = Task(id="build", title="Build it", blocked_by=["design"])


def test_an_update_changes_what_it_names_and_nothing_else() -> None:
    after = changed(BUILD, UpdateTask(task_id="build", status="in_progress", result="half of it", blocked_by=[]))
    assert (after.status, after.result, after.blocked_by, after.title) == ("in_progress", "half of it", [], "Build it")
    twice = changed(BUILD, UpdateTask(task_id="build", blocked_by=["a", "b", "a"]))
    assert twice.blocked_by == ["a", "b"]
    with pytest.raises(NothingToChange):
        changed(BUILD, UpdateTask(task_id="build"))


@pytest.mark.parametrize("status", ["in_progress", "done"])
def test_a_task_neither_begins_nor_ends_before_those_it_waits_for(status: str) -> None:
    after = changed(BUILD, UpdateTask(task_id="build", status=status))  # type: ignore[arg-type]
    with pytest.raises(TaskWaits, match="design"):
        check(BUILD, after, {"design": []})
    check(BUILD, after, {})  # done, cancelled, or removed since
    freed = changed(BUILD, UpdateTask(task_id="build", status=status, blocked_by=[]))  # type: ignore[arg-type]
    check(BUILD, freed, {"design": []})


def test_a_task_that_waits_can_be_cancelled_called_blocked_and_put_right() -> None:
    for status in ("cancelled", "blocked", "open"):
        check(BUILD, changed(BUILD, UpdateTask(task_id="build", status=status)), {"design": []})
    begun = Task(id="build", title="Build it", status="in_progress", blocked_by=["design"])
    check(begun, changed(begun, UpdateTask(task_id="build", title="Build")), {"design": []})


def test_tasks_that_would_wait_for_each_other_for_ever_are_refused() -> None:
    unfinished = {"design": ["talk"], "talk": ["think"], "think": []}
    check(None, BUILD, unfinished)
    talk = Task(id="talk", title="Talk", blocked_by=["think", "build"])
    with pytest.raises(BlockersInACircle, match="talk → build → design → talk"):
        check(None, talk, unfinished | {"build": ["design"]})
    with pytest.raises(BlockersInACircle, match="build → build"):
        check(None, Task(id="build", title="x", blocked_by=["build"]), {})


def test_many_ways_to_one_task_are_looked_at_once() -> None:
    layers = {f"{layer}-{n}": [f"{layer + 1}-{m}" for m in range(20)] for layer in range(40) for n in range(20)}
    check(None, Task(id="x", title="x", blocked_by=["0-0"]), layers)


def test_a_task_waits_for_so_many_others_and_a_board_has_so_many_unfinished_tasks() -> None:
    many = Task(id="x", title="x", blocked_by=[str(number) for number in range(limits.BLOCKERS + 1)])
    with pytest.raises(TooManyBlockers):
        check(None, many, {})
    full = {str(number): [] for number in range(limits.UNFINISHED_TASKS)}
    with pytest.raises(TooManyTasks, match="finish or cancel some"):
        check(None, Task(id="x", title="x"), full)
    done = Task(id="y", title="y", status="done")
    with pytest.raises(TooManyTasks):
        check(done, changed(done, UpdateTask(task_id="y", status="open")), full)
    check(done, changed(done, UpdateTask(task_id="y", result="more")), full)
    one = Task(id="1", title="1")
    check(one, changed(one, UpdateTask(task_id="1", status="in_progress")), full)
