"""Claims about the pure decisions: what a turn came to, which model is next, what steers, what a review says."""

import subprocess
from pathlib import Path

import msgspec
import pytest
from valet_protocol.events import facts
from valet_protocol.events.agent import AgentError, FileChange, GitChanged, ReviewCompleted
from valet_runner import (
    failover,
    frames,
    git_environment,
    limits,
    message_ids,
    patches,
    permissions,
    reviews,
    sequel,
    steering,
    turn_state,
    turns,
)
from valet_runner.bridge_state import BridgeState, MessageState, PartState, TextPart
from valet_runner.prompt_parts import TextInput
from valet_runner.sequel import Renewal
from valet_runner.turns import Steered, Tried, Turn

USER = "msg_100user"
FACT = facts.TurnDispatched(
    turn_id="t", prompt_id="p", content="do", model="a/1", fallbacks=["b/2", "a/1", "c/3"], author="u"
)
TURN = Turn(fact=FACT, user_message=USER, began=0.0)
IDLE = msgspec.structs.replace(turn_state.begin_turn(BridgeState(root="ses"), USER), idle=True)
REFUSED = AgentError(name="APIError", message="a wrong key", status=401)


def answer(
    state: BridgeState, *, key: str = "msg_200", parent: str = USER, text: str = "", error: AgentError | None = None
) -> BridgeState:
    parts: dict[str, PartState] = {"prt": TextPart(kind="text", text=text, done=True)}
    finish = None if error else "stop"
    message = MessageState(session="ses", parent=parent, parts=parts, error=error, reported=True, finish=finish)
    return state.with_message(key, message)


# -- failover


def test_each_model_of_the_chain_is_tried_once() -> None:
    assert turns.chain(FACT) == ["a/1", "b/2", "c/3"]
    assert failover.next_model(TURN) == "b/2"
    second = msgspec.structs.replace(TURN, tried=(Tried(model="a/1", error=REFUSED),))
    assert (second.model, failover.next_model(second)) == ("b/2", "c/3")
    third = msgspec.structs.replace(TURN, tried=(*second.tried, Tried(model="b/2", error=REFUSED)))
    assert (third.model, failover.next_model(third)) == ("c/3", None)


def test_a_try_that_left_nothing_starts_over_and_one_that_left_something_goes_on() -> None:
    switch = failover.plan(answer(IDLE, error=REFUSED), TURN)
    assert switch == failover.Switch(from_model="a/1", to_model="b/2", error=REFUSED, start_over=True)
    spoken = failover.plan(answer(IDLE, text="Half an ans", error=REFUSED), TURN)
    assert spoken
    assert not spoken.start_over
    # what failed models of earlier tries have left does not count
    again = turn_state.next_try(answer(IDLE, text="Half an ans", error=REFUSED), "msg_300user")
    switch = failover.plan(answer(again, key="msg_400", parent="msg_300user", error=REFUSED), TURN)
    assert switch
    assert switch.start_over


def test_a_try_that_was_steered_is_not_taken_back() -> None:
    steered = steering.put(TURN, Steered(prompt_id="q", message_id="msg_150user", parts=[], taken=True))
    switch = failover.plan(answer(IDLE, error=REFUSED), steered)
    assert switch
    assert not switch.start_over


@pytest.mark.parametrize(
    "name",
    ["MessageAbortedError", "ContextOverflowError", "MessageOutputLengthError", "StructuredOutputError"],
)
def test_what_another_model_would_not_cure_is_no_reason_to_switch(name: str) -> None:
    assert failover.plan(answer(IDLE, error=AgentError(name=name, message="x")), TURN) is None


@pytest.mark.parametrize(
    "change",
    [
        {"interrupted": True},
        {"lost": True},
        {"failure": REFUSED},
        {"fact": msgspec.structs.replace(FACT, fallbacks=[])},
        {"fact": msgspec.structs.replace(FACT, kind="shell")},
    ],
)
def test_a_turn_that_was_ended_otherwise_gets_no_other_model(change: dict[str, object]) -> None:
    assert failover.plan(answer(IDLE, error=REFUSED), msgspec.structs.replace(TURN, **change)) is None


def test_a_completed_turn_and_an_unknown_command_get_no_other_model() -> None:
    assert failover.plan(answer(IDLE, text="Done."), TURN) is None
    command = msgspec.structs.replace(TURN, fact=msgspec.structs.replace(FACT, kind="command"))
    unknown = msgspec.structs.replace(IDLE, error=AgentError(name="UnknownError", message="Command not found"))
    assert failover.plan(unknown, command) is None
    assert failover.plan(unknown, TURN)


def retrying(attempt: int, *, wait_s: float = 2.0) -> BridgeState:
    status = frames.Status(type="retry", attempt=attempt, message="slow down", next=1000 + wait_s * 1000)
    return msgspec.structs.replace(IDLE, retry=status, retries=attempt)


def test_a_model_is_given_up_after_two_tries_or_a_long_wait_if_there_is_another() -> None:
    assert failover.gives_up(retrying(1), TURN, 1000) is None
    given_up = failover.gives_up(retrying(limits.RETRIES_BEFORE_SWITCH), TURN, 1000)
    assert given_up
    assert given_up.message == "slow down"
    assert failover.gives_up(retrying(1, wait_s=600), TURN, 1000)
    alone = msgspec.structs.replace(TURN, fact=msgspec.structs.replace(FACT, fallbacks=[]))
    assert failover.gives_up(retrying(5), alone, 1000) is None
    assert failover.gives_up(retrying(5), msgspec.structs.replace(TURN, giving_up=given_up), 1000) is None


def test_the_last_error_names_every_model_with_its_reason() -> None:
    tried = (Tried(model="a/1", error=REFUSED), Tried(model="b/2", error=AgentError(name="x", message="slow down")))
    turn = msgspec.structs.replace(TURN, tried=tried)
    ended = turns.outcome(answer(IDLE, error=AgentError(name="APIError", message="no money", status=402)), turn, 1.0)
    assert ended.error == AgentError(
        name="APIError", message="a/1: a wrong key; b/2: slow down; c/3: no money", status=402
    )


# -- steering


def test_a_turn_is_not_over_before_a_steering_prompt_is_answered() -> None:
    steered = Steered(prompt_id="q", message_id="msg_300user", parts=[])
    turn = steering.put(TURN, steered)
    state = turn_state.asked(answer(IDLE, text="first"), "msg_300user")
    assert not turns.settled(state, turn)
    assert turns.unanswered(state, turn) is None  # it is still on its way
    there = steering.put(turn, msgspec.structs.replace(steered, taken=True))
    assert not turns.settled(state, there)
    assert turns.unanswered(state, there)
    # a step that began later may have been begun without it: only what answers it counts
    assert not turns.settled(answer(state, key="msg_400"), there)
    assert turns.settled(answer(state, key="msg_400", parent="msg_300user"), there)
    repeated = steering.put(turn, msgspec.structs.replace(steered, taken=True, repeated=True))
    assert turns.unanswered(state, repeated) is None


def test_a_turn_that_broke_off_is_over_whatever_has_steered_it() -> None:
    turn = steering.put(TURN, Steered(prompt_id="q", message_id="msg_300user", parts=[], taken=True))
    state = turn_state.asked(answer(IDLE, error=REFUSED), "msg_300user")
    assert turns.settled(state, turn)


def test_only_the_running_prompt_is_steered() -> None:
    fact = facts.PromptSteered(turn_id="t", prompt_id="q", content="x", author="u")
    assert steering.takes(TURN, fact)
    assert not steering.takes(None, fact)
    assert not steering.takes(TURN, msgspec.structs.replace(fact, turn_id="other"))
    for change in ({"interrupted": True}, {"lost": True}, {"user_message": ""}, {"failure": REFUSED}):
        assert not steering.takes(msgspec.structs.replace(TURN, **change), fact)
    shell = msgspec.structs.replace(TURN, fact=msgspec.structs.replace(FACT, kind="shell"))
    assert not steering.takes(shell, fact)


def test_a_prompt_that_openCode_has_is_found_by_its_id() -> None:
    seen = [message_ids.user_message_id("q", 1_795_000_000_000), "msg_other"]
    dispatched = msgspec.structs.replace(FACT, prompt_id="q", steered=True)
    assert steering.was_delivered(dispatched, seen)
    assert steering.was_delivered(msgspec.structs.replace(dispatched, prompt_ids=["x", "q"]), seen)
    assert not steering.was_delivered(FACT, seen)


def test_a_turns_message_is_found_in_whichever_attempt() -> None:
    ids = {message_ids.user_message_id("t", 1_795_000_000_000, attempt=attempt) for attempt in range(3)}
    assert len(ids) == 3
    assert all(message_ids.belongs_to(message_id, "t") for message_id in ids)


# -- reviews


CHANGED = GitChanged(
    base_commit="abc",
    head_commit="abc",
    branch="main",
    files=[FileChange(path="a.txt", status="modified", additions=1, deletions=2)],
    patch="",
)


def test_a_review_is_about_the_sessions_changes_and_the_persons_wishes() -> None:
    asked = reviews.instructions("  Look at the locking. ", CHANGED)
    assert "`git diff abc`" in asked
    assert "- a.txt (modified, +1 -2)" in asked
    assert "\nLook at the locking.\n" in asked
    assert "says:" not in reviews.instructions("", CHANGED)
    many = msgspec.structs.replace(CHANGED, files=CHANGED.files * (limits.REVIEW_FILES + 7))
    assert "- and 7 more" in reviews.instructions("", many)


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "```json\n{}\n```",
        "Here it is:\n```\n{}\n```\nThat is all.",
        "So: {} Done.",
        '`f(x) { return {}; }` is wrong: {"x": 1}\n~~~JSON\n{}\n~~~ as {I} said.'.replace("return {}", "return 0"),
    ],
)
def test_findings_are_found_in_whatever_stands_around_them_and_sorted(around: str) -> None:
    text = (
        '{"summary": "s", "findings": [{"file": "b", "line": 9, "severity": "info", "text": "i"},'
        ' {"file": "b", "line": 2, "severity": "major", "text": "{m}"},'
        ' {"file": "a", "severity": "major", "text": "n"}]}'
    )
    review = reviews.read("t", [around.replace("{}", text), "That is all."])
    assert isinstance(review, ReviewCompleted)
    assert [(found.severity, found.file, found.line) for found in review.findings] == [
        ("major", "a", None),
        ("major", "b", 2),
        ("info", "b", 9),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Looks fine.", "no JSON object"),
        ('{"summary": "s"}', "`findings`"),
        ('{"summary": "s", "findings": [{"file": "a", "severity": "awful", "text": "t"}]}', "awful"),
        ('{"summary": "s", "findings": [', "broken"),
        ("{" * 100_000, "broken"),
        # what could not be put into an event
        ('{"summary": "\\ud800", "findings": []}', "surrogate"),
        ('{"summary": "s", "findings": [{"file": "a", "line": 1%s}]}' % ("0" * 5000), "broken"),
        ('{"a":' * 100_000, "no JSON object"),
        ("", "no answer"),
    ],
    ids=lambda value: value[:20],
)
def test_an_answer_that_is_no_review_is_an_error_that_says_why(text: str, reason: str) -> None:
    error = reviews.read("t", [text] if text else [], ["What it said first."])
    assert isinstance(error, AgentError)
    assert error.name == "review_not_understood"
    assert reason in error.message
    # nothing of what it said is lost
    assert "What it said first." in error.message
    assert text[: limits.REVIEW_SAID_CHARS] in error.message
    assert len(error.message) < 2 * limits.REVIEW_SAID_CHARS
    assert reason in reviews.second_ask([text] if text else [])


def test_a_review_that_cannot_be_read_is_asked_for_once_more_and_no_other_turn_is() -> None:
    asked = msgspec.structs.replace(TURN, fact=msgspec.structs.replace(FACT, kind="review"))
    state = answer(IDLE, text="Fine.")
    ask = turns.second_ask(state, asked)
    assert ask
    assert "no JSON object" in ask
    assert turns.second_ask(state, TURN) is None
    assert turns.second_ask(state, msgspec.structs.replace(asked, interrupted=True)) is None
    again = turns.misread(state, asked)
    assert again.misread == ("Fine.",)
    assert turns.second_ask(state, again) is None


@pytest.mark.parametrize("line", ["0", "-1", "1" + "0" * 30])
def test_a_line_that_no_file_has_is_left_out(line: str) -> None:
    text = '{"summary": "s", "findings": [{"file": "a", "line": N, "severity": "info", "text": "t"}]}'
    review = reviews.read("t", [text.replace("N", line)])
    assert isinstance(review, ReviewCompleted)
    assert [found.line for found in review.findings] == [None]


def test_a_review_of_nothing_is_a_completed_turn() -> None:
    turn = msgspec.structs.replace(
        TURN, fact=msgspec.structs.replace(FACT, kind="review"), review=reviews.nothing_changed("t")
    )
    assert turns.outcome(IDLE, turn, 1.0).status == "completed"


# -- permissions, patches, authors


def test_a_policys_rules_come_after_its_default_and_questions_stay_allowed() -> None:
    deny = facts.PermissionRule(permission="bash", pattern="git push *", action="deny")
    rules = permissions.rules(facts.SessionPolicy(permissions="ask", permission_rules=[deny]))
    assert [(rule.permission, rule.pattern, rule.action) for rule in rules] == [
        ("*", "*", "ask"),
        ("bash", "git push *", "deny"),
        ("question", "*", "allow"),
    ]
    old = permissions.rules(facts.SessionPolicy())
    assert permissions.in_force([*old, *rules], rules)
    assert not permissions.in_force([*rules, *old], rules)
    assert not permissions.in_force(None, rules)


def test_a_patch_names_its_files_with_their_counts() -> None:
    patch = (
        "diff --git a/rv.txt b/rv.txt\nindex f7..56 100644\n--- a/rv.txt\n+++ b/rv.txt\n@@ -1 +1 @@\n-two\n+one\n"
        "diff --git a/new file b/new file\nnew file mode 100644\n--- /dev/null\n+++ b/new file\n@@ -0,0 +1 @@\n++x\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n--x\n"
        "diff --git a/old b/moved\nsimilarity index 100%\nrename from old\nrename to moved\n"
    )
    assert [(c.path, c.status, c.additions, c.deletions) for c in patches.files_of(patch)] == [
        ("rv.txt", "modified", 1, 1),
        ("new file", "added", 1, 0),
        ("gone", "deleted", 0, 1),
        ("moved", "renamed", 0, 0),
    ]
    assert patches.files_of("") == []


@pytest.mark.parametrize("name", ["Ada Lovelace", 'O"Brien \\ x', "two\nlines = [core]"])
def test_git_knows_the_author_whatever_the_name(tmp_path: Path, name: str) -> None:
    (tmp_path / ".gitconfig").write_text("[alias]\n\tco = checkout\n")  # an older home's own
    git_environment.write_config(tmp_path)
    git_environment.write_config(tmp_path)

    def get(key: str) -> str:
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "config", "--global", "--includes", key]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=10, check=True).stdout[:-1]

    assert get("user.name") == "Valet agent"
    git_environment.set_author(tmp_path, name, "ada@example.invalid")
    assert (get("user.name"), get("user.email")) == (" ".join(name.split()), "ada@example.invalid")
    assert get("alias.co") == "checkout"
    git_environment.set_author(tmp_path)
    assert (get("user.name"), get("user.email")) == ("Valet agent", "agent@valet.invalid")


def test_a_prompts_parts_are_as_opencode_takes_them() -> None:
    assert msgspec.json.encode(TextInput(text="x")) == b'{"type":"text","text":"x"}'
    assert msgspec.json.encode(TextInput(text="x", synthetic=True)) == b'{"type":"text","text":"x","synthetic":true}'


@pytest.mark.parametrize(
    "error",
    [
        AgentError(name="UnknownError", message="All fibers interrupted without error"),
        AgentError(name="MessageAbortedError", message="Aborted"),
    ],
    ids=["fibers", "aborted"],
)
def test_a_turn_that_opencode_breaks_off_by_itself_is_for_another_opencode_and_fails_the_second_time(
    error: AgentError,
) -> None:
    broken = answer(IDLE, error=error)
    assert sequel.of(broken, TURN) == Renewal(error=error, start_over=True)
    assert sequel.of(answer(IDLE, text="Half an ans", error=error), TURN) == Renewal(error=error, start_over=False)
    again = msgspec.structs.replace(TURN, renewed=True)
    ended = turns.outcome(broken, again, 1.0)
    assert (ended.status, ended.error and ended.error.name) == ("failed", "broken_off")
    assert turns.leaves_opencode_broken(ended)
    # a person's command is not run twice, and whose end was asked for is not begun again
    shell = msgspec.structs.replace(TURN, fact=msgspec.structs.replace(FACT, kind="shell"))
    asked_for = msgspec.structs.replace(TURN, interrupted=True)
    assert sequel.of(broken, shell) is None
    assert sequel.of(broken, asked_for) is None
    ended = turns.outcome(broken, asked_for, 1.0)
    assert ended.status == "interrupted"
    assert not turns.leaves_opencode_broken(ended)


def test_the_last_word_of_the_turn_before_does_not_end_the_next_one() -> None:
    late = msgspec.structs.replace(IDLE, error=AgentError(name="MessageAbortedError", message="Aborted"))
    assert not turns.settled(late, TURN)
    assert turns.settled(late, msgspec.structs.replace(TURN, interrupted=True))
    assert turns.settled(msgspec.structs.replace(IDLE, error=REFUSED), TURN)
