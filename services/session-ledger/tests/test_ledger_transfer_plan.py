"""Claims about where a fork begins, what is taken over, and which files are refused. Pure: a log is a list."""

from collections.abc import Sequence

import msgspec
import pytest
from valet_protocol.codec import encode, new_event, with_seq
from valet_protocol.errors import Conflict, NotFound, Unprocessable
from valet_protocol.events import agent, facts, machine
from valet_protocol.events.agent import WorkRef
from valet_protocol.events.envelope import Data
from valet_protocol.ids import new_id
from valet_session_ledger import limits
from valet_session_ledger.rows import EventRow
from valet_session_ledger.transfer_events import Selection, Told, imported, told
from valet_session_ledger.transfer_lines import read
from valet_session_ledger.transfer_place import Place, place
from valet_session_ledger.transfer_plan import Planner

SOURCE = "01SOURCE"


class Log:
    """A session's archive as it grows."""

    def __init__(self, session_id: str = SOURCE) -> None:
        self.session_id = session_id
        self.rows: list[EventRow] = []
        self.epoch = 0
        self.add(facts.SessionRequested(owner="ada", model="m/x"))

    def add(self, data: Data, *, epoch: int | None = None, turn: str | None = None) -> int:
        seq = 10 * (len(self.rows) + 1)
        event = new_event(data, id=new_id(), session_id=self.session_id, now_ms=seq, epoch=epoch, turn=turn)
        self.rows.append(EventRow(seq, self.session_id, event.type, encode(event, source="/s").payload))
        return seq

    def attach(self) -> None:
        self.epoch += 1
        self.add(facts.RunnerAttached(epoch=self.epoch, runner_version="t"))

    def say(self, data: Data, turn: str | None = None) -> int:
        return self.add(data, epoch=self.epoch, turn=turn)

    def prompt(self, number: int) -> int:
        return self.add(facts.PromptAccepted(prompt_id=f"p{number}", content=f"Do {number}", author="ada", model="m/x"))

    def dispatch(self, number: int) -> int:
        return self.add(
            facts.TurnDispatched(
                turn_id=f"t{number}", prompt_id=f"p{number}", content=f"Do {number}", model="m/x", author="ada"
            ),
            turn=f"t{number}",
        )

    def answer(self, number: int) -> None:
        self.say(agent.MessageCreated(message_id=f"m{number}"), f"t{number}")
        self.say(agent.MessageCompleted(message_id=f"m{number}", text=f"Done {number}"), f"t{number}")

    def save(self, number: int, folder: str | None = None) -> None:
        self.say(agent.WorkSaved(turn_id=f"t{number}", work=_work(folder or self.session_id, number)), f"t{number}")

    def turn(self, number: int) -> int:
        """A whole turn; the sequence of its end."""
        self.prompt(number)
        self.dispatch(number)
        self.answer(number)
        self.save(number)
        return self.say(agent.TurnEnded(turn_id=f"t{number}", status="completed"), f"t{number}")

    def told(self) -> list[Told]:
        found = [told(row.seq, row.session_id, row.type, row.payload) for row in self.rows]
        return [event for event in found if event is not None]

    def plan(self) -> Planner:
        planner = Planner(self.session_id)
        for event in self.told():
            planner.show(event)
        return planner

    def taken(self) -> list[Told]:
        selection = Selection()
        return [event for event in self.told() if selection.takes(event)]

    def lines(self) -> list[msgspec.Raw]:
        return [msgspec.Raw(with_seq(row.payload, row.seq)) for row in self.rows]


def _work(folder: str, number: int) -> WorkRef:
    return WorkRef(object=f"sessions/{folder}/saved/t{number}", bytes=1, sha256=f"{number:064x}")


def _two_turns() -> tuple[Log, int, int]:
    log = Log()
    log.attach()
    first = log.turn(1)
    second = log.turn(2)
    return log, first, second


def test_a_fork_at_an_agents_message_begins_after_its_turn() -> None:
    log, first, _ = _two_turns()
    point = log.plan().point("m1")
    assert (point.at, point.work) == (first, _work(SOURCE, 1))


def test_a_fork_at_a_picture_outside_of_turns_has_it_and_never_half_a_turn() -> None:
    def picture(log: Log, image_id: str) -> int:
        return log.say(machine.ImageShown(image_id=image_id, object="o", media_type="image/png", bytes=1, sha256="x"))

    log = Log()
    log.attach()
    log.turn(1)
    between = picture(log, "between")
    log.prompt(2)
    log.dispatch(2)
    picture(log, "while")
    with pytest.raises(Conflict):
        log.plan().point("while")
    end = log.say(agent.TurnEnded(turn_id="t2", status="completed"), "t2")
    picture(log, "between")
    log.turn(3)
    assert log.plan().point("between").at == between
    assert log.plan().point("while").at == end
    with pytest.raises(NotFound):
        log.plan().point("never")


def test_a_fork_at_a_persons_message_begins_before_its_turn() -> None:
    log, first, second = _two_turns()
    dispatched = next(event for event in log.told() if event.turn == "t2")
    point = log.plan().point("p2")
    assert (point.at, point.work) == (dispatched.seq - 1, _work(SOURCE, 1))
    assert first < point.at < second
    assert log.plan().point("p1").work is None


def test_a_fork_at_no_message_begins_after_the_last_ended_turn() -> None:
    log, _, second = _two_turns()
    log.prompt(3)
    log.dispatch(3)
    log.answer(3)
    point = log.plan().point(None)
    assert (point.at, point.work) == (second, _work(SOURCE, 2))
    empty = Log()
    assert empty.plan().point(None).at == empty.rows[0].seq


def test_a_fork_at_no_message_does_not_move_on_between_plan_and_fork() -> None:
    log, _, second = _two_turns()
    planned = log.plan().point(None)
    log.turn(3)
    assert log.plan().point(None, planned.work).at == second
    assert log.plan().point(None, _work("elsewhere", 99)).at > second


@pytest.mark.parametrize("message", ["p3", "m3"])
def test_a_message_of_a_turn_that_still_runs_cannot_be_forked_at(message: str) -> None:
    log, _, _ = _two_turns()
    log.prompt(3)
    log.dispatch(3)
    log.answer(3)
    with pytest.raises(Conflict) as refusal:
        log.plan().point(message)
    assert refusal.value.code == "turn_running"
    log.add(facts.TurnInterrupted(turn_id="t3", reason="runner_lost", detail="gone"), turn="t3")
    log.plan().point(message)


def test_a_message_that_is_not_there_cannot_be_forked_at() -> None:
    with pytest.raises(NotFound):
        _two_turns()[0].plan().point("p9")


def test_a_conversation_that_is_taken_back_is_forked_as_of_before_that_message() -> None:
    log, first, second = _two_turns()
    log.say(agent.ConversationReverted(message_id="p2"))
    assert first < log.plan().point(None).at < second
    log.prompt(3)
    log.dispatch(3)
    assert first < log.plan().point(None).at < second
    third = log.say(agent.TurnEnded(turn_id="t3", status="completed"), "t3")
    assert log.plan().point(None).at == third  # the fork hears of it itself
    log.say(agent.ConversationReverted(message_id="p1"))
    log.say(agent.ConversationUnreverted())
    assert log.plan().point(None).at == third


def test_saved_work_of_another_session_is_not_believed() -> None:
    log = Log()
    log.attach()
    log.prompt(1)
    log.dispatch(1)
    log.save(1, folder="01VICTIM")
    log.say(agent.TurnEnded(turn_id="t1", status="completed"), "t1")
    assert log.plan().point(None).work is None


def test_what_a_replaced_runner_said_is_left_behind() -> None:
    log, _, _ = _two_turns()
    log.attach()
    log.add(agent.MessageCompleted(message_id="ghost", text="Boo"), epoch=1, turn="t2")
    log.add(agent.TurnEnded(turn_id="t2", status="failed"), epoch=1, turn="t2")
    assert [event.data.text for event in log.taken() if isinstance(event.data, agent.MessageCompleted)] == [
        "Done 1",
        "Done 2",
    ]


def test_only_what_tells_the_conversation_is_taken_over() -> None:
    log, _, _ = _two_turns()
    log.say(agent.StatusChanged(status="busy"))
    log.say(agent.RunnerReady(opencode_version="1", boot_ms=1))
    process = machine.ProcessInfo(id="proc_1", command="ls", cwd="/", pid=1, pty=False, created_at="")
    for data in (
        machine.BootStepCompleted(step="git", ms=1, outcome="ok"),
        machine.ServiceChanged(service="vnc", state="running"),
        machine.TunnelsChanged(tunnels=[]),
        machine.ProcessCreated(process=process),
        machine.ProcessUpdated(process=process),
        machine.ProcessExited(process=process),
        machine.ProcessDeleted(process_id="proc_1"),
    ):
        log.say(data)
    log.say(machine.ImageShown(image_id="i", object="o", media_type="image/png", bytes=1, sha256="x"))
    log.say(machine.ChannelReplied(reply_id="r", channel="slack:x", text="Hi"))
    log.add(facts.ShareLinkCreated(link_id="l", token_sha256="x", role="viewer", by="ada"))
    log.add(facts.SandboxRequested(epoch=2, reason="prompt", model="m", boot_deadline_ms=1))
    assert {event.type for event in log.taken()} == {
        "fact.prompt_accepted",
        "fact.turn_dispatched",
        "agent.message_created",
        "agent.message_completed",
        "agent.work_saved",
        "agent.turn_ended",
        "agent.image_shown",
        "agent.channel_replied",
    }


def test_what_was_taken_over_once_is_taken_over_again_unwrapped() -> None:
    log, _, _ = _two_turns()
    fork = Log("01FORK")
    for event in log.taken():
        fork.add(imported(event))
    again = [event for event in fork.told() if event.taken_over]
    assert [(event.type, event.turn, event.data) for event in again] == [
        (event.type, event.turn, event.data) for event in log.taken()
    ]
    assert fork.plan().point("m1").work == _work(SOURCE, 1)
    assert imported(again[0]).type == "fact.prompt_accepted"


def test_how_far_an_import_is_is_told_by_its_own_log() -> None:
    log, _, _ = _two_turns()
    own = Log("01FORK")
    own.rows.clear()
    own.add(facts.SessionImported(owner="ada", model="m", source_session=SOURCE, source_seq=90, forked=True))
    some = log.taken()[:3]
    for event in some:
        own.add(imported(event))
    found = Place()
    for row in own.rows:
        place(found, row)
    assert (found.events, found.source_seq, found.completed) == (3, some[-1].seq, False)
    assert found.begun is not None
    own.add(facts.ImportCompleted(events=3))
    place(found, own.rows[-1])
    assert found.completed


def _refusal(lines: Sequence[bytes | msgspec.Raw], offset: int = 0) -> str:
    with pytest.raises(Unprocessable) as refusal:
        read([msgspec.Raw(line) for line in lines], offset=offset, source_session=SOURCE, after=0)
    assert refusal.value.code == "bad_import"
    return refusal.value.detail


def test_a_bad_line_is_refused_by_its_number() -> None:
    lines = _two_turns()[0].lines()
    read(lines, offset=0, source_session=SOURCE, after=0)
    assert "line 2: it is not an event" in _refusal([lines[0], b'{"type":1}'])
    assert "line 12: its seq 10 is not above 20" in _refusal([lines[1], lines[0]], offset=10)
    assert "line 1: an export begins with" in _refusal([lines[1]])
    other = Log("01OTHER").lines()
    assert "line 1: it is an event of 01OTHER" in _refusal(other)
    wrong = bytes(lines[3]).replace(b'"content"', b'"kontent"')
    assert "line 3: fact.turn_dispatched" in _refusal([lines[0], lines[1], wrong])
    newer = bytes(lines[3]).replace(b'"dataversion":1', b'"dataversion":7')
    assert "line 2: it is fact.turn_dispatched of version 7" in _refusal([lines[0], newer])
    timeless = bytes(lines[3]).replace(b'"time":"1970', b'"time":"long ago')
    assert "line 2: " in _refusal([lines[0], timeless])
    assert "at most" in _refusal([lines[0]] * (limits.IMPORT_PAGE + 1))
    assert "line 2: it has" in _refusal([lines[0], b'{"a":"' + b"x" * limits.IMPORT_EVENT_BYTES + b'"}'])


def test_lines_of_a_kind_nobody_knows_are_passed_over() -> None:
    lines = _two_turns()[0].lines()
    unknown = bytes(lines[3]).replace(b"fact.turn_dispatched", b"fact.moon_landed")
    assert len(read([lines[0], msgspec.Raw(unknown)], offset=0, source_session=SOURCE, after=0)) == 1


# -- what a runner said too late -------------------------------------------------------------------------------


def test_the_end_a_runner_tells_of_a_turn_that_was_interrupted_is_not_taken_over() -> None:
    log = Log()
    log.attach()
    log.prompt(1)
    log.dispatch(1)
    log.say(agent.TurnStarted(turn_id="t1", prompt_id="p1", opencode_session="o"), "t1")
    log.add(facts.TurnInterrupted(turn_id="t1", reason="aborted", detail="stopped"), turn="t1")
    log.say(agent.TurnEnded(turn_id="t1", status="completed"), "t1")
    log.prompt(2)
    log.dispatch(2)
    log.say(agent.TurnEnded(turn_id="t1", status="failed"), "t1")
    log.say(agent.TurnEnded(turn_id="t2", status="completed"), "t2")
    selection = Selection()
    ends = [
        (type(event.data).__name__, event.turn)
        for event in log.told()
        if selection.takes(event) and isinstance(event.data, facts.TurnInterrupted | agent.TurnEnded)
    ]
    assert ends == [("TurnInterrupted", "t1"), ("TurnEnded", "t2")]
    # an import that goes on after a crash knows the present turn from its own log
    late = [event for event in log.told() if isinstance(event.data, agent.TurnEnded)]
    resumed = Selection(epoch=1, turn="t2")
    assert [resumed.takes(event) for event in late] == [False, False, True]


# -- saved work that nothing needs -----------------------------------------------------------------------------


def test_saved_work_is_kept_for_forks_of_the_latest_turns_and_of_a_fork_only_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FORKABLE_TURNS", 2)
    log = Log()
    log.attach()
    assert log.plan().superfluous() == []
    for number in range(1, 6):
        log.turn(number)
    # turns 4 and 5 may be forked at: before and after them there was the work of 3, 4 and 5
    assert log.plan().superfluous() == [_work(SOURCE, 1).object, _work(SOURCE, 2).object]
    for message in ("p4", "m4", "p5", "m5"):
        work = log.plan().point(message).work
        assert work is not None
        assert work.object not in log.plan().superfluous()
    fork = Log("01FORK")
    fork.rows.clear()
    fork.add(
        facts.SessionImported(owner="ada", model="m/x", source_session=SOURCE, source_seq=1, work=_work("01FORK", 0))
    )
    for event in log.taken():
        fork.add(imported(event))
    fork.add(facts.ImportCompleted(events=1))
    assert fork.plan().superfluous() == []
    fork.attach()
    for number in range(6, 11):
        fork.turn(number)
    assert fork.plan().superfluous() == [_work("01FORK", 6).object, _work("01FORK", 7).object]


def test_a_fork_of_a_session_that_was_imported_starts_from_what_that_came_with() -> None:
    source, log = Log(), Log("01COPY")
    source.attach()
    source.turn(1)
    work = _work("01COPY", 7)
    log.rows.clear()
    log.add(facts.SessionImported(owner="ada", model="m/x", source_session=SOURCE, source_seq=0, work=work))
    for event in source.told()[1:]:
        if not isinstance(event.data, agent.WorkSaved):
            log.add(imported(event))
    at = log.add(facts.ImportCompleted(events=9))
    point = log.plan().point(None)
    assert (point.at, point.work) == (at, work)
