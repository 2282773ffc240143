"""Claims about what nobody answers: questions, permissions, silent runners. Pure, like the decisions."""

import pytest
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.requests import AnswerQuestion, ChangePolicy
from valet_session_ledger import limits
from valet_session_ledger.react import is_at_rest, next_due
from valet_session_ledger.react_permissions import matches
from valet_session_ledger.story import Story, kinds, ready, running

# -- permissions by rule ---------------------------------------------------------------------------------------


def _permission(story: Story, *patterns: str, permission: str = "bash", question_id: str = "q1") -> str | None:
    """What the policy answers at once, if anything."""
    story.runner(
        agent.QuestionAsked(
            question_id=question_id, kind="permission", questions=[], permission=permission, patterns=list(patterns)
        )
    )
    decided = story.settle()
    assert all(isinstance(data, facts.QuestionAnswered) and data.answered_by == "policy" for data in decided)
    return decided[0].answers[0][0] if decided else None  # type: ignore[attr-defined]


def _policy(*rules: tuple[str, str, str], base: str = "auto-approve") -> facts.SessionPolicy:
    made = [facts.PermissionRule(permission=kind, pattern=pattern, action=action) for kind, pattern, action in rules]  # type: ignore[arg-type]
    return facts.SessionPolicy(permissions=base, permission_rules=made)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("patterns", "answer"),
    [
        (("ls",), "once"),
        (("git push origin",), None),
        (("git push --force",), "reject"),
        (("ls", "git push --force"), "reject"),
        (("ls", "git push origin"), None),
        (("git[push]",), "once"),
    ],
)
def test_the_last_rule_that_matches_counts_and_the_strictest_part_of_a_command(
    patterns: tuple[str, ...], answer: str | None
) -> None:
    policy = _policy(("*", "*", "allow"), ("bash", "git push *", "ask"), ("bash", "git push --forc?", "deny"))
    assert _permission(running(policy=policy), *patterns) == answer


@pytest.mark.parametrize(
    ("wildcards", "text", "stands"),
    [
        ("*", "", True),
        ("git push *", "git push", True),
        ("git push *", "git pushed", False),
        ("git push*", "git pushed", True),
        ("a*b*c", "a.b.b.c", True),
        ("a*b*c", "a.c", False),
        ("ab*b", "ab", False),
        ("*.py", "x/y.py", True),
        ("?.py", "xy.py", False),
        ("a[b]", "ab", False),
        ("a\nb*", "a\nb\nc", True),
        ("*a" * 50, "a" * 49 + "b" * 100_000, False),
    ],
)
def test_wildcards_mean_what_they_mean_to_the_agent(wildcards: str, text: str, stands: bool) -> None:
    assert matches(wildcards, text) is stands


def test_what_no_rule_is_about_is_treated_as_the_session_says() -> None:
    policy = _policy(("edit", "*", "allow"), base="ask")
    assert _permission(running(policy=policy), "a.txt", permission="edit") == "once"
    assert _permission(running(policy=policy), "ls") is None


def test_a_changed_policy_counts_for_what_is_open_as_well() -> None:
    story = running(policy=_policy(base="ask"))
    assert _permission(story, "ls") is None
    story.ask("q2")
    story.do(ChangePolicy(session_id="S", user="ada", policy=_policy(("bash", "*", "deny"), base="ask")))
    assert story.settle()[0].answers == [["reject"]]  # type: ignore[attr-defined]
    quick = facts.SessionPolicy(question_timeout_s=1)
    assert kinds(story.do(ChangePolicy(session_id="S", user="ada", policy=quick))) == ["PolicyChanged"]
    assert story.do(ChangePolicy(session_id="S", user="ada", policy=quick)) == []
    assert next_due(story.s) == story.now + 1000


def test_a_permission_gets_the_default_that_the_session_names() -> None:
    policy = facts.SessionPolicy(permissions="ask", permission_timeout_s=5, permission_default="once")
    story = running(policy=policy)
    assert _permission(story, "ls") is None
    story.now += 5000
    (answer,) = story.settle()
    assert isinstance(answer, facts.QuestionAnswered)
    assert (answer.answers, answer.answered_by) == ([["once"]], "default")


# -- questions outlive their turn ------------------------------------------------------------------------------


def _lost_with_a_question() -> Story:
    story = ready()
    story.prompt("p1", channel="slack:x", model="m/one", author_name="Ada")
    story.settle()
    story.start()
    story.ask("q1", "question", "A", "B")
    story.prompt("p2")
    story.lose()
    story.settle()
    return story


def test_an_answer_to_a_question_of_a_lost_turn_is_the_next_prompt() -> None:
    story = _lost_with_a_question()
    assert [question.question_id for question in story.s.questions] == ["q1"]
    story.do(AnswerQuestion(session_id="S", user="ada", question_id="q1", answers=[["B"]]))
    (prompt,) = story.settle()
    assert isinstance(prompt, facts.PromptAccepted)
    assert (prompt.answers, prompt.author, prompt.channel, prompt.model) == ("q1", "ada", "slack:x", "m/one")
    assert prompt.author_name == "Ada"
    assert "Which?" in prompt.content
    assert "B" in prompt.content
    assert [item.prompt_id for item in story.s.queue] == [prompt.prompt_id, "p2"]


def test_a_question_of_a_lost_turn_gets_its_default_and_wakes_a_hibernated_session() -> None:
    story = running()
    story.ask("q1", "question", "A", "B")
    story.happen(sandbox.SandboxHibernated(epoch=1, reason="idle"))
    assert kinds(story.settle()) == ["TurnInterrupted"]
    assert next_due(story.s) == story.s.questions[0].due_ms
    story.now = story.s.questions[0].due_ms
    assert kinds(story.settle()) == ["QuestionAnswered", "PromptAccepted", "SandboxRequested"]
    assert story.s.queue[0].author == "ada"


def test_a_question_of_a_lost_turn_stays_open_over_further_turns_and_runners() -> None:
    story = _lost_with_a_question()
    story.boot()
    story.settle()
    story.start()
    story.runner(agent.QuestionResolved(question_id="q1", outcome="dropped"))
    story.end()
    assert [question.question_id for question in story.s.questions] == ["q1"]


def test_a_permission_of_a_lost_turn_is_dropped() -> None:
    story = running(policy=facts.SessionPolicy(permissions="ask"))
    assert _permission(story, "ls") is None
    story.lose()
    story.settle()
    assert story.s.questions == ()


# -- silence ---------------------------------------------------------------------------------------------------


def test_a_turn_without_a_word_is_stopped_and_its_runner_replaced_if_it_does_not_answer() -> None:
    story = running()
    assert next_due(story.s) == story.now + limits.SILENT_MS
    story.now += limits.SILENT_MS
    (stop,) = story.settle()
    assert isinstance(stop, facts.TurnInterruptRequested)
    assert (stop.reason, stop.by) == ("silent", "")
    story.now += limits.INTERRUPT_DEADLINE_MS
    decided = story.settle()
    assert kinds(decided) == ["TurnInterrupted", "SandboxRequested"]
    assert (decided[0].reason, decided[1].reason) == ("silent", "recovery")  # type: ignore[attr-defined]
    assert story.s.requested_epoch == 2


def test_a_runner_that_answers_the_interrupt_keeps_its_sandbox() -> None:
    story = running()
    story.now += limits.SILENT_MS
    story.settle()
    story.end()
    assert (story.settle(), story.s.status) == ([], "ready")


def test_any_word_of_the_runner_puts_the_watchdog_off_and_few_of_them_change_the_state() -> None:
    story = running()
    changes = 0
    for _ in range(100):
        story.now += 10_000
        before = story.state
        story.runner(agent.StatusChanged(status="busy"))
        changes += story.state is not before
        assert story.settle() == []
    assert changes == 100 * 10_000 // limits.HEARD_STEP_MS
    assert (next_due(story.s) or 0) > story.now + limits.SILENT_MS - limits.HEARD_STEP_MS


def test_while_a_question_is_open_silence_is_the_agents_right() -> None:
    story = running()
    story.ask()
    story.now += 2 * limits.SILENT_MS
    assert story.settle() == []
    story.do(AnswerQuestion(session_id="S", user="ada", answers=[["yes"]]))
    assert story.settle() == []
    assert next_due(story.s) == story.now + limits.SILENT_MS


def test_a_runner_whose_clock_is_behind_is_not_taken_for_silent() -> None:
    story = ready()
    story.prompt()
    story.settle()
    behind = 3_600_000
    story.now -= behind
    story.start()
    for _ in range(60):
        story.now += 10_000
        story.runner(agent.StatusChanged(status="busy"))
        story.now += behind
        assert story.settle() == []
        story.now -= behind


def test_a_runner_that_never_begins_a_turn_is_replaced_and_the_turn_is_kept() -> None:
    story = ready()
    story.prompt()
    story.settle()
    turn = story.s.turn
    for epoch in range(2, limits.TURN_LOSSES + 1):
        story.now += limits.SILENT_MS
        assert kinds(story.settle()) == ["SandboxRequested"]
        story.boot()
        assert (story.s.requested_epoch, story.s.turn and story.s.turn.turn_id) == (epoch, turn and turn.turn_id)
    story.now += limits.SILENT_MS
    assert kinds(story.settle()) == ["SandboxRequested", "TurnInterrupted"]


def test_a_session_with_nothing_to_do_is_not_watched() -> None:
    story = running()
    story.end()
    assert is_at_rest(story.s)
