"""The checker finds what went wrong in terminals and with what agents asked of the platform: as `test_checker`."""

import msgspec
import pytest
from chaos.history import FIRST, SESSION, faultless, stored
from valet_local.chaos.check_terminals import written
from valet_local.chaos.checker import check
from valet_local.chaos.records import History, Stored, TerminalConnection, TerminalRecord

WHOLE = TerminalConnection(asked=0, offset=0, dropped=0, running=True, text=written(0, 47))
AGAIN = TerminalConnection(asked=47, offset=47, dropped=0, running=True, text=written(47, 100), ended=147)


def on_a_terminal(*connections: TerminalConnection) -> History:
    record = TerminalRecord(session_id=SESSION, process_id="proc_1", connections=list(connections))
    return msgspec.structs.replace(faultless(), terminals=[record])


def test_output_over_two_connections_is_whole() -> None:
    assert written(8, 14) == "\r\n00000001\r\n00"
    assert check(on_a_terminal(WHOLE, AGAIN)) == []
    gone = msgspec.structs.replace(AGAIN, offset=90, dropped=43, running=False, text="", ended=90)
    assert check(on_a_terminal(WHOLE, gone)) == []  # the process service was killed, and all of its processes


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (msgspec.structs.replace(AGAIN, text=written(48, 100), ended=None), "at 47 came"),  # a byte lost
        (msgspec.structs.replace(AGAIN, text=written(40, 7) + AGAIN.text, ended=None), "at 47 came"),  # some doubled
        (msgspec.structs.replace(AGAIN, text="", ended=None, refused=True), "does not know of the 47 bytes"),
        (msgspec.structs.replace(AGAIN, ended=148), "its end is at 148"),
        (msgspec.structs.replace(AGAIN, offset=57), "told that 0 bytes are gone"),
        (msgspec.structs.replace(AGAIN, offset=57, dropped=10, text=written(57, 90)), "of a process that runs"),
        (msgspec.structs.replace(AGAIN, asked=40, offset=40, text=written(40, 107)), "asked for 40 having 47"),
    ],
)
def test_a_byte_too_few_or_too_many_is_found(wrong: TerminalConnection, words: str) -> None:
    [violation] = check(on_a_terminal(WHOLE, wrong))
    assert (violation.rule, violation.session_id) == ("a terminal's output is whole", SESSION)
    assert words in violation.what
    assert "connection 1" in violation.what


def called(seq: int, tool: str, status: str = "completed") -> Stored:
    return stored(seq, "agent.tool_updated", tool=f"valet_{tool}", status=status, input={"content": f"Do {FIRST}."})


def with_events(*events: Stored, memories: tuple[str, ...] = (), tasks: tuple[str, ...] = ()) -> History:
    history = faultless()
    stream = [*history.stream, *events]
    return msgspec.structs.replace(history, stream=stream, clients=[], memories=list(memories), tasks=list(tasks))


@pytest.mark.parametrize("tool", ["write_memory", "create_task"])
def test_a_note_that_is_lost_or_there_twice_is_found(tool: str) -> None:
    def noted(count: int, status: str) -> History:
        notes = (f"Do {FIRST}.",) * count
        memories, tasks = (notes, ()) if tool == "write_memory" else ((), notes)
        return with_events(called(100, tool, status), memories=memories, tasks=tasks)

    assert check(noted(1, "completed")) == []
    for count in (0, 1):
        assert check(noted(count, "error")) == []  # cut off: done or not
    for count, status in ((0, "completed"), (2, "completed"), (2, "error")):
        [violation] = check(noted(count, status))
        assert violation.rule == "what an agent notes is written once"
        assert f"{tool} for {FIRST} is there {count} times" in violation.what


def child(seq: int, name: str, parent: str = SESSION, title: str = FIRST) -> Stored:
    made = stored(seq, "fact.session_requested", parent=parent, title=title)
    return msgspec.structs.replace(made, session_id=name)


def test_a_child_that_was_made_twice_or_never_is_found() -> None:
    asked = stored(100, "fact.child_requested", child_id="child-1")
    told = called(101, "spawn_child")
    assert check(with_events(asked, told, child(102, "child-1"))) == []
    rule = "a child is spawned once"
    for events in ((asked,), (asked, child(102, "child-1"), child(103, "child-1", title="")), (told,)):
        assert [violation.rule for violation in check(with_events(*events))] == [rule], events
    twice = stored(104, "fact.child_requested", child_id="child-2")
    found = check(with_events(asked, child(102, "child-1"), twice, child(105, "child-2")))
    assert [violation.what for violation in found] == [f"2 children have the title {FIRST}"]
