"""Claims about decide, evolve and react. Pure: no fixtures, no clocks; times are small numbers of milliseconds."""

import pytest
from valet_protocol.errors import Conflict, NotFound, TooMany, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.requests import (
    AbortTurn,
    AnswerQuestion,
    AttachRunner,
    CreateSession,
    SubmitPrompt,
    TerminateSession,
)
from valet_session_ledger import limits
from valet_session_ledger.decide import Known, accepted, decide
from valet_session_ledger.react import is_at_rest, next_due
from valet_session_ledger.state import pack, unpack
from valet_session_ledger.story import Story, kinds, ready, running

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
    assert decide(story.s, again, now_ms=story.now, known=Known(prompt=receipt)) == []


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
    asking = running(policy=facts.SessionPolicy(permissions="ask", permission_timeout_s=5))
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
