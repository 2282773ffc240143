"""Claims about decide, evolve and react. Pure: no fixtures, no clocks; times are small numbers of milliseconds."""

import pytest
from valet_protocol.codec import new_event
from valet_protocol.errors import Conflict, NotFound, TooMany, Unprocessable
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data
from valet_protocol.requests import (
    AbortTurn,
    AnswerQuestion,
    AttachRunner,
    CreateSession,
    Request,
    SubmitPrompt,
    TerminateSession,
)
from valet_session_ledger import limits
from valet_session_ledger.decide import accepted, attached, decide
from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.react import is_at_rest, next_due, react
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState, pack, unpack

CREATE = CreateSession(session_id="S", owner="ada", model="m/x", repo="https://example.org/r.git")


class Story:
    """A session's log as it grows: commands are decided, events arrive, `settle` lets react act."""

    def __init__(self, **fields: object) -> None:
        self.state: SessionState | None = None
        self.seq = 0
        self.now = 1_000
        self.log: list[Data] = []
        self.do(CreateSession(session_id="S", owner="ada", model="m/x", **fields))  # type: ignore[arg-type]

    @property
    def s(self) -> SessionState:
        assert self.state is not None
        return self.state

    def happen(self, data: Data, *, epoch: int | None = None, turn: str | None = None) -> None:
        self.seq += 1
        event = new_event(data, id=str(self.seq), session_id="S", now_ms=self.now, turn=turn, epoch=epoch)
        if counts(self.state, event):
            self.state = evolve(self.state, stamp_seq(event, self.seq))
        self.log.append(data)

    def runner(self, data: Data, epoch: int | None = None) -> None:
        turn = self.s.turn.turn_id if self.s.turn else None
        self.happen(data, epoch=epoch or self.s.attached_epoch, turn=turn)

    def do(self, command: Request) -> list[Data]:
        decided = decide(self.state, command)
        for data in decided:
            self.happen(data, turn=stamp("S", self.state, data, self.now).turn)
        return decided

    def settle(self) -> list[Data]:
        """Let react act until it rests; what it decided."""
        decided: list[Data] = []
        while now := react(self.s, self.now):
            assert len(decided) < 50, f"react does not come to rest: {decided[-5:]}"
            decided.append(now[0])
            self.happen(now[0], turn=stamp("S", self.state, now[0], self.now).turn)
        return decided

    def boot(self) -> None:
        epoch = self.s.requested_epoch
        self.happen(sandbox.SandboxProvisioning(epoch=epoch, provider="t"))
        self.happen(sandbox.SandboxReady(epoch=epoch, provider="t", sandbox_id="x", isolation="none"))
        self.do(AttachRunner(session_id="S", epoch=epoch, runner_version="t"))
        self.runner(agent.RunnerReady(opencode_version="1", base_commit="base", boot_ms=1))

    def prompt(self, prompt_id: str = "p1", content: str = "Hi") -> None:
        self.do(SubmitPrompt(session_id="S", user="ada", prompt_id=prompt_id, content=content))

    def start(self) -> None:
        turn = self.s.turn
        assert turn
        self.runner(agent.TurnStarted(turn_id=turn.turn_id, prompt_id=turn.prompt_id, opencode_session="o"))

    def end(self) -> None:
        turn = self.s.turn
        assert turn
        self.runner(agent.TurnEnded(turn_id=turn.turn_id, status="completed"))

    def ask(self, question_id: str = "q1", kind: str = "question", *labels: str) -> None:
        options = [agent.QuestionOption(label=label) for label in labels or ("yes", "no")]
        question = agent.Question(question="Which?", options=options)
        self.runner(
            agent.QuestionAsked(question_id=question_id, kind=kind, questions=[question])  # type: ignore[arg-type]
        )

    def lose(self, detail: str = "killed") -> None:
        self.happen(sandbox.SandboxLost(epoch=self.s.requested_epoch, kind="gone", detail=detail))


def stamp_seq(event: object, seq: int):
    from msgspec.structs import replace

    return replace(event, seq=seq)  # type: ignore[type-var]


def ready() -> Story:
    story = Story()
    story.settle()
    story.boot()
    story.settle()
    return story


def running(*, policy: facts.SessionPolicy | None = None) -> Story:
    story = Story(policy=policy) if policy else Story()
    story.settle()
    story.boot()
    story.prompt()
    story.settle()
    story.start()
    return story


def kinds(decided: list[Data]) -> list[str]:
    return [type(data).__name__ for data in decided]


# -- the usual way ---------------------------------------------------------------------------------------------


def test_a_new_session_asks_for_its_sandbox() -> None:
    story = Story()
    (asked,) = story.settle()
    assert isinstance(asked, facts.SandboxRequested)
    assert (asked.epoch, asked.reason, story.s.status) == (1, "created", "requested")


def test_a_prompt_waits_until_the_runner_is_ready() -> None:
    story = Story()
    story.settle()
    story.prompt()
    assert story.settle() == []
    assert accepted(story.s, "p1", 3).status == "queued"
    story.boot()
    assert kinds(story.settle()) == ["TurnDispatched"]
    assert (story.s.status, accepted(story.s, "p1", 3).status) == ("busy", "dispatched")


def test_prompts_have_their_turns_one_after_the_other() -> None:
    story = ready()
    story.prompt("p1")
    story.prompt("p2")
    assert kinds(story.settle()) == ["TurnDispatched"]
    story.start()
    assert story.settle() == []
    story.end()
    (second,) = story.settle()
    assert isinstance(second, facts.TurnDispatched)
    assert second.prompt_id == "p2"


def test_events_that_change_nothing_give_the_same_state() -> None:
    story = running()
    before = story.state
    story.runner(agent.MessageCreated(message_id="m"))
    story.runner(agent.TextCompleted(message_id="m", part_id="p", kind="text", text="x"))
    assert story.state is before


def test_a_snapshot_is_the_state() -> None:
    story = running()
    story.ask()
    assert unpack(pack(story.s)) == story.s


def test_the_title_of_a_person_is_kept_and_the_agents_fills_an_empty_one() -> None:
    named, unnamed = Story(title="Mine"), Story()
    for story in (named, unnamed):
        story.settle()
        story.boot()
        story.runner(agent.SessionTitled(title="Agent's"))
    assert (named.s.title, unnamed.s.title) == ("Mine", "Agent's")


# -- repetitions -----------------------------------------------------------------------------------------------


def test_the_same_command_again_decides_nothing() -> None:
    story = running()
    assert story.do(CreateSession(session_id="S", owner="ada", model="m/x")) == []
    assert story.do(SubmitPrompt(session_id="S", user="ada", prompt_id="p1", content="Hi")) == []
    assert story.do(AttachRunner(session_id="S", epoch=1, runner_version="t")) == []
    assert kinds(story.do(AbortTurn(session_id="S", user="ada"))) == ["TurnInterruptRequested"]
    assert story.do(AbortTurn(session_id="S", user="ada")) == []
    story.ask()
    answer = AnswerQuestion(session_id="S", user="ada", question_id="q1", answers=[["no"]])
    assert kinds(story.do(answer)) == ["QuestionAnswered"]
    assert story.do(answer) == []
    assert kinds(story.do(TerminateSession(session_id="S", user="ada"))) == ["SessionTerminated"]
    assert story.do(TerminateSession(session_id="S", user="ada")) == []


def test_an_idempotency_key_for_another_body_is_refused() -> None:
    story = ready()
    story.prompt("p1", "Hi")
    with pytest.raises(Unprocessable, match="used before"):
        story.prompt("p1", "Something else")
    with pytest.raises(Unprocessable, match="used before"):
        story.do(CreateSession(session_id="S", owner="ada", model="m/other"))


def test_a_repetition_older_than_the_state_remembers_is_known_from_its_receipt() -> None:
    story = ready()
    story.prompt("old", "Hi")
    receipt = story.s.receipts[0]
    story.settle()
    for number in range(limits.RECEIPTS + 1):
        story.start()
        story.end()
        story.prompt(f"p{number}")
        story.settle()
    assert all(kept.prompt_id != "old" for kept in story.s.receipts)
    again = SubmitPrompt(session_id="S", user="ada", prompt_id="old", content="Hi")
    assert decide(story.s, again, receipt) == []


def test_somebody_elses_session_is_not_there() -> None:
    story = running()
    for command in (
        SubmitPrompt(session_id="S", user="eve", prompt_id="x", content="x"),
        AbortTurn(session_id="S", user="eve"),
        TerminateSession(session_id="S", user="eve"),
        AnswerQuestion(session_id="S", user="eve", answers=[["yes"]]),
    ):
        with pytest.raises(NotFound):
            story.do(command)
    with pytest.raises(Conflict):
        story.do(CreateSession(session_id="S", owner="eve", model="m/x"))


def test_the_queue_is_bounded() -> None:
    story = Story()
    for number in range(limits.QUEUED_PROMPTS):
        story.prompt(f"p{number}")
    with pytest.raises(TooMany):
        story.prompt("one more")


# -- questions -------------------------------------------------------------------------------------------------


def test_a_question_gets_its_first_option_when_its_time_has_passed() -> None:
    story = running()
    story.ask("q1", "question", "A", "B")
    assert story.settle() == []
    assert next_due(story.s) == story.now + 3_600_000
    story.now += 3_600_000
    (answer,) = story.settle()
    assert isinstance(answer, facts.QuestionAnswered)
    assert (answer.answers, answer.answered_by) == ([["A"]], "default")


def test_the_second_answer_is_refused() -> None:
    story = running()
    story.ask()
    story.do(AnswerQuestion(session_id="S", user="ada", answers=[["no"]]))
    with pytest.raises(Conflict, match="first answer"):
        story.do(AnswerQuestion(session_id="S", user="ada", question_id="q1", answers=[["yes"]]))


def test_a_permission_is_granted_at_once_or_refused_at_last() -> None:
    auto = running()
    auto.ask("q1", "permission")
    (answer,) = auto.settle()
    assert isinstance(answer, facts.QuestionAnswered)
    assert (answer.answers, answer.answered_by) == ([["once"]], "policy")
    asking = running(policy=facts.SessionPolicy(permissions="ask", question_timeout_s=5))
    asking.ask("q1", "permission")
    assert asking.settle() == []
    asking.now += 5_000
    (answer,) = asking.settle()
    assert isinstance(answer, facts.QuestionAnswered)
    assert answer.answers == [["reject"]]


def test_answers_that_do_not_fit_are_refused() -> None:
    story = running(policy=facts.SessionPolicy(permissions="ask"))
    story.ask("q1")
    for answers in ([], [["yes"], ["no"]], [["yes", "no"]]):
        with pytest.raises(Unprocessable):
            story.do(AnswerQuestion(session_id="S", user="ada", question_id="q1", answers=answers))
    story.ask("q2", "permission")
    with pytest.raises(Unprocessable, match="once, always, reject"):
        story.do(AnswerQuestion(session_id="S", user="ada", question_id="q2", answers=[["maybe"]]))
    with pytest.raises(Unprocessable, match="q1, q2"):
        story.do(AnswerQuestion(session_id="S", user="ada", answers=[["yes"]]))


def test_open_questions_end_with_their_turn() -> None:
    story = running()
    story.ask()
    story.end()
    assert (story.s.questions, next_due(story.s)) == ((), None)
    story.ask("late")
    story.prompt("p2")
    story.settle()
    turn = story.s.turn
    assert turn
    story.happen(agent.QuestionAsked(question_id="stray", kind="question", questions=[]), epoch=1, turn="old")
    assert [question.question_id for question in story.s.questions] == ["late"]


# -- stopping --------------------------------------------------------------------------------------------------


def test_abort_with_nothing_running_is_refused() -> None:
    with pytest.raises(Conflict, match="No turn"):
        ready().do(AbortTurn(session_id="S", user="ada"))


def test_a_runner_that_does_not_stop_in_time_has_its_turn_ended() -> None:
    story = running()
    story.do(AbortTurn(session_id="S", user="ada"))
    assert story.settle() == []
    story.now += limits.INTERRUPT_DEADLINE_MS
    (ended,) = story.settle()
    assert isinstance(ended, facts.TurnInterrupted)
    assert (ended.reason, story.s.turn) == ("aborted", None)


def test_a_terminated_session_gives_its_sandbox_back_and_takes_no_more() -> None:
    story = running()
    story.prompt("p2")
    story.do(TerminateSession(session_id="S", user="ada"))
    decided = story.settle()
    assert kinds(decided) == ["TurnInterrupted", "SandboxReleaseRequested"]
    assert isinstance(decided[1], facts.SandboxReleaseRequested)
    assert decided[1].delete_workspace
    assert (story.s.status, story.s.queue, is_at_rest(story.s)) == ("terminated", (), True)
    with pytest.raises(Conflict, match="ended"):
        story.prompt("p3")


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
