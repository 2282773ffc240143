"""Claims about sessions below sessions: what makes a child, what its parent hears, and when a session is over. Pure."""

import pytest
from msgspec.structs import replace
from valet_protocol.errors import Conflict, Forbidden, NotFound, TooMany, Unprocessable
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.requests import (
    AddParticipant,
    NoteParentTold,
    ReportChild,
    RequestChild,
    RequestCompletion,
    SessionView,
    SubmitPrompt,
    TerminateSession,
)
from valet_session_ledger import family_views, limits
from valet_session_ledger.decide import Known, decide
from valet_session_ledger.react import is_at_rest, react
from valet_session_ledger.react_family import End, Spawn, Tell, errands
from valet_session_ledger.state import Child, SessionState
from valet_session_ledger.story import Story, kinds, ready, running


def _spawn(story: Story, request_id: str = "r1", **fields: object) -> facts.ChildRequested | None:
    command = RequestChild(session_id="S", request_id=request_id, prompt="Do it", **fields)  # type: ignore[arg-type]
    done = story.do(command)
    assert len(done) <= 1
    asked = done[0] if done else None
    assert asked is None or isinstance(asked, facts.ChildRequested)
    return asked


def _child(story: Story, child_id: str) -> Child:
    return next(child for child in story.s.children if child.session_id == child_id)


def _changed(story: Story, child_id: str, change: str, seq: int, **fields: object) -> list[str]:
    command = ReportChild(session_id="S", child_id=child_id, change=change, child_seq=seq, **fields)  # type: ignore[arg-type]
    return kinds(story.do(command))


def _started(story: Story, request_id: str = "r1", **fields: object) -> str:
    asked = _spawn(story, request_id, **fields)
    assert asked is not None
    assert _changed(story, asked.child_id, "started", 0) == ["ChildChanged"]
    return asked.child_id


def below(*ancestors: str, orchestrator: bool = False) -> Story:
    """A session below others, in the middle of its first turn."""
    story = Story(ancestors=list(ancestors), orchestrator=orchestrator)
    story.settle()
    story.boot()
    story.prompt()
    story.settle()
    story.start()
    return story


# -- making a child --------------------------------------------------------------------------------------------


def test_a_child_is_wanted_by_a_fact_and_made_until_it_is_there() -> None:
    story = running()
    assert is_at_rest(replace(story.s, turn=None))
    asked = _spawn(story)
    assert asked is not None
    assert errands(story.s) == [Spawn(request=asked)]
    assert not is_at_rest(replace(story.s, turn=None))
    assert _changed(story, asked.child_id, "started", 0) == ["ChildChanged"]
    assert errands(story.s) == []
    assert is_at_rest(replace(story.s, turn=None))
    assert _changed(story, asked.child_id, "started", 0) == []


def test_the_same_request_is_the_same_child_and_another_one_under_its_id_is_refused() -> None:
    story = running()
    first = _spawn(story)
    assert first is not None
    assert _spawn(story) is None
    second = _spawn(story, "r2")
    assert second is not None
    assert second.child_id != first.child_id
    with pytest.raises(Unprocessable) as refusal:
        _spawn(story, title="another")
    assert refusal.value.code == "idempotency_key_reused"
    assert story.s.spawned == 2


def test_a_child_takes_over_what_its_parent_has_unless_it_is_given() -> None:
    story = running()
    story.state = replace(story.s, repo="/srv/project", branch="main")
    asked = _spawn(story)
    assert asked is not None
    assert (asked.repo, asked.branch, asked.model, asked.policy) == ("/srv/project", "main", "m/x", story.s.policy)
    other = _spawn(story, "r2", repo="https://example.org/a/b.git", model="n/y")
    assert other is not None
    assert (other.repo, other.branch, other.model) == ("https://example.org/a/b.git", None, "n/y")


@pytest.mark.parametrize(
    "fields",
    [
        {"repo": "/etc"},
        {"repo": "file:///etc"},
        {"repo": "ext::sh -c id"},
        {"repo": "--upload-pack=id"},
        {"repo": "https://user:secret@example.org/a.git"},
        {"repo": "a@example.org::b"},
        {"branch": "--force"},
        {"branch": "a b"},
        {"model": "nothing"},
    ],
)
def test_an_agent_names_no_path_of_the_host_and_no_option_of_git(fields: dict[str, str]) -> None:
    with pytest.raises(Unprocessable):
        _spawn(running(), **fields)


def test_only_one_that_directs_others_starts_one_that_does() -> None:
    with pytest.raises(Forbidden) as refusal:
        _spawn(running(), orchestrator=True)
    assert refusal.value.code == "not_an_orchestrator"
    assert _spawn(Story(orchestrator=True), orchestrator=True) is not None


def test_children_are_limited_by_depth_by_parent_and_by_tree() -> None:
    deep = Story(ancestors=[f"A{number}" for number in range(limits.CHILD_DEPTH)])
    with pytest.raises(TooMany) as refusal:
        _spawn(deep)
    assert refusal.value.code == "too_deep"
    story = running()
    children = [_started(story, f"r{number}") for number in range(limits.LIVING_CHILDREN)]
    with pytest.raises(TooMany) as refusal:
        _spawn(story, "more")
    assert refusal.value.code == "too_many_children"
    _changed(story, children[0], "completed", 5)
    assert _spawn(story, "more") is not None
    with pytest.raises(TooMany) as refusal:
        decide(
            running().state,
            RequestChild(session_id="S", request_id="r", prompt="x"),
            now_ms=0,
            known=Known(living=limits.LIVING_IN_TREE),
        )
    assert refusal.value.code == "tree_too_large"


def test_a_session_that_has_ended_starts_nothing() -> None:
    story = running()
    story.do(TerminateSession(session_id="S", user="ada"))
    with pytest.raises(Conflict) as refusal:
        _spawn(story)
    assert refusal.value.code == "session_ended"


def test_ended_children_are_forgotten_and_living_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_CHILDREN", 2)
    story = running()
    living = _started(story, "living")
    for number in range(4):
        _changed(story, _started(story, f"r{number}"), "completed", 5)
    assert [child.status for child in story.s.children] == ["going_on", "ended", "ended"]
    assert story.s.children[0].session_id == living
    assert story.s.spawned == 5


# -- what a parent hears ---------------------------------------------------------------------------------------


def test_a_parent_hears_of_turns_and_of_the_end_and_of_each_once() -> None:
    story = below("P")
    assert errands(story.s) == []
    story.end()
    story.settle()
    ended = story.seq
    (tell,) = errands(story.s)
    assert isinstance(tell, Tell)
    assert (tell.parent, tell.news.change, tell.news.seq) == ("P", "turn_completed", ended)
    assert not is_at_rest(story.s)
    story.do(NoteParentTold(session_id="S", child_seq=ended))
    assert errands(story.s) == []
    assert story.do(NoteParentTold(session_id="S", child_seq=ended)) == []
    story.do(TerminateSession(session_id="S", user="ada"))
    story.settle()
    assert [item.change for item in story.s.news] == ["terminated"]


def test_a_loss_is_told_where_it_ends_a_turn_and_not_otherwise() -> None:
    story = below("P")
    story.end()
    story.lose()
    assert [item.change for item in story.s.news] == ["turn_completed"]
    story = below("P")
    story.lose("no memory")
    story.settle()
    assert [(item.change, "no memory" in item.detail) for item in story.s.news] == [("turn_interrupted", True)]


def test_a_failure_is_told_in_its_own_words() -> None:
    story = below("P")
    turn = story.s.turn
    assert turn
    error = agent.AgentError(name="APIError", message="out of credit")
    story.runner(agent.TurnEnded(turn_id=turn.turn_id, status="failed", error=error))
    assert [(item.change, item.detail) for item in story.s.news] == [("turn_failed", "out of credit")]
    story.happen(facts.SessionFailed(code="clone_failed", detail="no such repository"))
    assert (story.s.news[-1].change, story.s.news[-1].detail) == ("failed", "no such repository")


def test_a_session_without_a_parent_has_nothing_to_tell() -> None:
    story = running()
    story.end()
    story.do(TerminateSession(session_id="S", user="ada"))
    assert story.s.news == ()
    assert errands(story.s) == []


def test_old_news_of_a_child_and_news_of_a_stranger_change_nothing() -> None:
    story = running()
    child_id = _started(story)
    assert _changed(story, child_id, "turn_completed", 9) == ["ChildChanged"]
    assert _changed(story, child_id, "turn_completed", 9) == []
    assert _changed(story, child_id, "turn_failed", 7) == []
    assert _changed(story, child_id, "completed", 12) == ["ChildChanged"]
    assert _changed(story, child_id, "terminated", 14) == []
    with pytest.raises(NotFound):
        _changed(story, "stranger", "completed", 1)


# -- what the parent's agent hears -----------------------------------------------------------------------------


def test_the_agent_gets_a_prompt_only_of_children_it_asked_to_hear_of() -> None:
    story = running()
    quiet, told = _started(story), _started(story, "r2", notify=True)
    _changed(story, quiet, "completed", 9)
    _changed(story, told, "completed", 9, title="Tests", detail="All green")
    (prompt,) = [data for data in story.settle() if isinstance(data, facts.PromptAccepted)]
    assert (prompt.mode, prompt.sender) == ("collect", facts.Sender(session_id=told, title="Tests", hops=1))
    assert "All green" in prompt.content
    assert story.s.notices == ()
    assert react(story.s, story.now) == []


def test_what_several_children_do_while_the_agent_works_is_one_turn() -> None:
    story = running()
    children = [_started(story, f"r{number}", notify=True) for number in range(3)]
    for child_id in children:
        _changed(story, child_id, "turn_completed", 9)
        story.settle()
    story.end()
    story.now += limits.COLLECT_LONGEST_MS
    (turn,) = [data for data in story.settle() if isinstance(data, facts.TurnDispatched)]
    assert len(turn.prompt_ids) == 3


def test_news_of_a_child_do_not_wake_a_session_while_the_platform_stops() -> None:
    story = ready()
    child_id = _started(story, notify=True)
    story.happen(sandbox.SandboxHibernated(epoch=1, reason="platform_stopped"))
    _changed(story, child_id, "completed", 9)
    assert kinds(story.settle()) == ["PromptAccepted"]
    story.now += limits.PLATFORM_STOP_HOLD_MS
    assert kinds(story.settle()) == ["SandboxRequested"]


def test_a_full_queue_makes_news_wait_and_the_latest_of_a_child_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUED_PROMPTS", 1)
    story = running()
    child_id = _started(story, notify=True)
    story.prompt("waits")
    _changed(story, child_id, "turn_completed", 9)
    _changed(story, child_id, "completed", 11)
    assert story.settle() == []
    assert [notice.change for notice in story.s.notices] == ["completed"]
    story.end()
    accepted = [data for data in story.settle() if isinstance(data, facts.PromptAccepted)]
    assert [prompt.sender for prompt in accepted] == [facts.Sender(session_id=child_id, hops=1)]


# -- the end ---------------------------------------------------------------------------------------------------


def _complete(story: Story, request_id: str = "c1", outcome: str = "done") -> list[str]:
    command = RequestCompletion(session_id="S", request_id=request_id, outcome=outcome, summary="Shipped")  # type: ignore[arg-type]
    return kinds(story.do(command))


@pytest.mark.parametrize(("outcome", "change"), [("done", "completed"), ("failed", "given_up")])
def test_a_session_its_agent_completes_ends_after_the_turn_and_says_so_once(outcome: str, change: str) -> None:
    story = below("P")
    assert _complete(story, outcome=outcome) == ["CompletionRequested"]
    assert story.settle() == []
    story.end()
    assert kinds(story.settle())[0] == "SessionTerminated"
    assert (story.s.phase, story.s.completed, story.s.detail) == ("terminated", outcome, "Shipped")
    assert [(item.change, item.detail) for item in story.s.news] == [(change, "Shipped")]
    assert _complete(story) == []


def test_prompts_that_wait_come_before_the_end_and_later_ones_take_it_back() -> None:
    story = below("P")
    story.prompt("before")
    _complete(story)
    story.end()
    assert kinds(story.settle()) == ["TurnDispatched"]
    story.prompt("after")
    assert story.s.completing is None
    assert _complete(story) == []  # the same request once more has no second effect
    story.start()
    story.end()
    story.settle()
    assert story.s.phase == "ready"
    assert _complete(story, "c2") == ["CompletionRequested"]


def test_one_that_directs_others_does_not_end_itself() -> None:
    with pytest.raises(Forbidden):
        _complete(below("P", orchestrator=True))


def test_a_session_that_is_ended_ends_its_children_and_one_that_completes_or_fails_does_not() -> None:
    for end in ("person", "agent", "failure"):
        story = running()
        child_id = _started(story)
        done = _started(story, "r2")
        _changed(story, done, "completed", 3)
        if end == "person":
            story.do(TerminateSession(session_id="S", user="ada"))
        elif end == "agent":
            _complete(story)
            story.end()
        else:
            story.happen(facts.SessionFailed(code="x", detail="x"))
        story.settle()
        assert errands(story.s) == ([End(child_id=child_id)] if end == "person" else [])
    story = running()
    child_id = _started(story)
    story.do(TerminateSession(session_id="S", user="ada"))
    assert _changed(story, child_id, "terminated", 8) == ["ChildChanged"]
    story.settle()
    assert is_at_rest(story.s)


def test_a_child_that_is_not_made_yet_when_its_parent_is_ended_is_made_and_ended() -> None:
    """It may be there already: only its parent's log does not say so yet."""
    story = running()
    asked = _spawn(story)
    assert asked is not None
    story.do(TerminateSession(session_id="S", user="ada"))
    story.settle()
    assert errands(story.s) == [Spawn(request=asked)]
    _changed(story, asked.child_id, "started", 0)
    assert errands(story.s) == [End(child_id=asked.child_id)]


def test_only_a_session_above_ends_one_in_the_name_of_a_session() -> None:
    story = below("P", "R")
    with pytest.raises(Conflict):
        story.do(TerminateSession(session_id="S", user="ada", session="stranger"))
    (ended,) = story.do(TerminateSession(session_id="S", user="ada", session="R", reason="enough"))
    assert ended == facts.SessionTerminated(by="ada", session="R", detail="enough")
    assert story.s.detail == "enough"


# -- who may do what -------------------------------------------------------------------------------------------


def test_who_takes_part_above_takes_part_below_and_the_higher_role_counts() -> None:
    story = below("P")
    prompt = SubmitPrompt(session_id="S", user="bob", prompt_id="b", content="x")
    with pytest.raises(NotFound):
        decide(story.state, prompt, now_ms=0)
    with pytest.raises(Forbidden):
        decide(story.state, prompt, now_ms=0, known=Known(role="viewer"))
    assert kinds(decide(story.state, prompt, now_ms=0, known=Known(role="collaborator"))) == ["PromptAccepted"]
    story.do(AddParticipant(session_id="S", user="ada", participant="bob", role="collaborator"))
    assert kinds(decide(story.state, prompt, now_ms=0, known=Known(role="viewer"))) == ["PromptAccepted"]


def _view(state: SessionState, **fields: object) -> SessionView:
    view = SessionView(
        id="T",
        status="ready",
        status_detail="",
        owner=state.owner,
        title="",
        repo=None,
        branch=None,
        model="m/x",
        created_at="",
        updated_at="",
        epoch=1,
        cost=0,
        tokens=agent.Tokens(),
        turns=0,
        seq=1,
    )
    return replace(view, **fields)  # type: ignore[arg-type]


def test_an_agent_reaches_its_own_tree_and_one_that_directs_others_all_of_its_owners() -> None:
    state = below("P", "R").s
    assert family_views.reaches(state, _view(state, id="R"))
    assert family_views.reaches(state, _view(state, ancestors=["Q", "R"]))
    assert not family_views.reaches(state, _view(state))
    assert not family_views.reaches(state, _view(state, ancestors=["R"], owner="bob"))
    director = ready().s
    assert not family_views.reaches(director, _view(director))
    assert family_views.reaches(replace(director, orchestrator=True), _view(director))
    assert not family_views.reaches(replace(director, orchestrator=True), _view(director, owner="bob"))
