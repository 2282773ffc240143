"""What the commands decide: how a turn went, what a typed line answers, how views are laid out."""

import pytest
from valet_local.cli import asking, outcome, tables
from valet_local.cli.run import _absolute
from valet_local.client.testing import VIEW, entry, event
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data

AIM = outcome.Aim(prompt_id="P")


def dispatched(prompt_id: str, turn_id: str) -> facts.TurnDispatched:
    return facts.TurnDispatched(turn_id=turn_id, prompt_id=prompt_id, content="x", model="p/m", author="u")


def went(*data: Data) -> outcome.Outcome | None:
    aim, over = AIM, None
    for one in data:
        aim, over = outcome.judge(aim, entry(event(one)))
    return over


def test_a_completed_turn_is_a_success():
    over = went(dispatched("P", "T"), agent.TurnEnded(turn_id="T", status="completed"))
    assert over is not None
    assert over.exit_code == 0


def test_the_turn_of_another_prompt_does_not_end_the_wait():
    assert went(dispatched("OTHER", "T"), agent.TurnEnded(turn_id="T", status="completed")) is None


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (agent.TurnEnded(turn_id="T", status="interrupted"), 130, ""),
        (
            agent.TurnEnded(turn_id="T", status="failed", error=agent.AgentError(name="APIError", message="no credit")),
            1,
            "no credit",
        ),
        (facts.TurnInterrupted(turn_id="T", reason="runner_lost", detail="it died"), 1, "it died"),
        (facts.TurnInterrupted(turn_id="T", reason="aborted", detail="stopped"), 130, "stopped"),
        (facts.SessionFailed(code="clone_failed", detail="fatal: no"), 1, "fatal: no"),
        (facts.SessionTerminated(by="u"), 130, "the session was ended"),
    ],
)
def test_each_end_has_its_exit_status_and_words(data: Data, status: int, words: str):
    over = went(dispatched("P", "T"), data)
    assert over is not None
    assert (over.exit_code, over.words) == (status, words)


def test_a_prompt_that_shares_its_turn_ends_with_it():
    collected = facts.TurnDispatched(
        turn_id="T", prompt_id="A", prompt_ids=["A", "P"], content="x", model="p/m", author="u"
    )
    ended = agent.TurnEnded(turn_id="T", status="completed")
    steered = agent.PromptTaken(turn_id="T", prompt_id="P", outcome="delivered")
    missed = agent.PromptTaken(turn_id="T", prompt_id="P", outcome="missed")
    assert went(collected, ended) is not None
    assert went(steered, ended) is not None
    assert went(missed, ended) is None


def test_a_prompt_that_was_taken_back_is_waited_for_no_more():
    over = went(facts.PromptWithdrawn(prompt_id="P", by="u"))
    assert over is not None
    assert over.exit_code == 130


def asked(*, multiple: bool = False, custom: bool = True) -> asking.Asking:
    options = [agent.QuestionOption(label="Red"), agent.QuestionOption(label="Blue")]
    question = agent.Question(question="Which?", options=options, multiple=multiple, custom=custom)
    return asking.begin(agent.QuestionAsked(question_id="q", kind="question", questions=[question]))


@pytest.mark.parametrize(
    ("line", "multiple", "custom", "answer"),
    [
        ("2\n", False, True, ("Blue",)),
        ("red", False, False, ("Red",)),
        ("1, blue", True, False, ("Red", "Blue")),
        ("green, please", False, True, ("green, please",)),
        ("green", False, False, None),
        ("3", False, False, None),
        ("  \n", False, True, None),
    ],
)
def test_a_typed_line_is_understood(line: str, multiple: bool, custom: bool, answer: tuple[str, ...] | None):
    taken = asking.take(asked(multiple=multiple, custom=custom), line)
    assert (taken and taken.answers[0]) == answer


def test_a_permission_is_answered_once_always_or_reject():
    permission = asking.begin(agent.QuestionAsked(question_id="q", kind="permission", questions=[]))
    taken = asking.take(permission, "always")
    assert taken is not None
    assert taken.complete
    assert taken.answers == (("always",),)
    assert asking.take(permission, "perhaps") is None


@pytest.mark.parametrize(
    "repo", ["https://example.org/a.git", "git@example.org:a/b.git", "ssh://git@example.org/a", "file:///a/b"]
)
def test_the_address_of_a_repository_is_left_as_it_is(repo: str):
    assert _absolute(repo) == repo


def test_a_path_is_made_absolute_and_no_repository_stays_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _absolute(".") == str(tmp_path)
    assert _absolute("sub/repo") == str(tmp_path / "sub/repo")
    assert _absolute(None) is None


def test_sessions_are_a_table_whose_columns_stand_under_each_other():
    pieces = tables.sessions([VIEW], now_ms=1_767_225_600_000 + 7_200_000)
    head, row = ("".join(span.text for span in piece.spans) for piece in pieces)
    assert row.split() == [VIEW.id, "ready", "Fix", "calc", "2", "$1.50", "2", "h"]
    assert [head.index(name) for name in ("STATUS", "TITLE", "REPO")] == [
        row.index(value) for value in ("ready", "Fix", "calc")
    ]
