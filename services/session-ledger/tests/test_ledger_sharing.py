"""Claims about who may do what, about commands between turns, and about sessions made of others. Pure."""

import pytest
from valet_protocol.errors import Conflict, Forbidden, NotFound, TooMany, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.requests import (
    AbortTurn,
    AddParticipant,
    AnswerQuestion,
    ChangePolicy,
    CreateSession,
    CreateShareLink,
    JoinSession,
    RemoveParticipant,
    RenameSession,
    RequestCommand,
    RevokeShareLink,
    SubmitPrompt,
    TerminateSession,
)
from valet_session_ledger import limits
from valet_session_ledger.decide import Known, attached, decide
from valet_session_ledger.decide_commands import Target
from valet_session_ledger.evolve import evolve
from valet_session_ledger.react import is_at_rest, next_due, react
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState, pack, unpack
from valet_session_ledger.story import Story, kinds, ready, running


def _add(story: Story, who: str, role: str) -> list[str]:
    return kinds(story.do(AddParticipant(session_id="S", user="ada", participant=who, role=role)))  # type: ignore[arg-type]


def _link(story: Story, link_id: str = "l", expires_ms: int | None = None) -> None:
    story.do(
        CreateShareLink(
            session_id="S", user="ada", link_id=link_id, token_sha256=link_id, role="viewer", expires_ms=expires_ms
        )
    )


def _join(story: Story, who: str, link_id: str = "l") -> list[str]:
    return kinds(story.do(JoinSession(session_id="S", user=who, token_sha256=link_id)))


# -- roles -----------------------------------------------------------------------------------------------------


def test_viewers_change_nothing_and_collaborators_do_not_share() -> None:
    story = running()
    _add(story, "vic", "viewer")
    _add(story, "bob", "collaborator")
    story.ask()
    working = (
        SubmitPrompt(session_id="S", user="vic", prompt_id="x", content="x"),
        AbortTurn(session_id="S", user="vic"),
        AnswerQuestion(session_id="S", user="vic", answers=[["yes"]]),
        RenameSession(session_id="S", user="vic", title="x"),
        RequestCommand(session_id="S", user="vic", request_id="c", command="unrevert"),
    )
    owning = (
        TerminateSession(session_id="S", user="bob"),
        ChangePolicy(session_id="S", user="bob", policy=facts.SessionPolicy(question_timeout_s=1)),
        AddParticipant(session_id="S", user="bob", participant="eve", role="viewer"),
        RemoveParticipant(session_id="S", user="bob", participant="vic"),
        CreateShareLink(session_id="S", user="bob", link_id="l", token_sha256="t", role="viewer"),
        RevokeShareLink(session_id="S", user="bob", link_id="l"),
    )
    for command in (*working, *owning):
        with pytest.raises(Forbidden) as refusal:
            story.do(command)
        assert refusal.value.code == "role_too_low"
    story.do(AnswerQuestion(session_id="S", user="bob", answers=[["yes"]]))
    story.prompt("by-bob", user="bob")
    assert story.s.queue[-1].author == "bob"


def test_a_role_can_be_changed_and_taken_and_given_up() -> None:
    story = ready()
    assert _add(story, "bob", "viewer") == ["ParticipantAdded"]
    assert _add(story, "bob", "viewer") == []
    assert _add(story, "bob", "collaborator") == ["ParticipantAdded"]
    assert story.s.role_of("bob") == "collaborator"
    leave = RemoveParticipant(session_id="S", user="bob", participant="bob")
    assert kinds(story.do(leave)) == ["ParticipantRemoved"]
    with pytest.raises(NotFound):
        story.prompt("x", user="bob")
    again = RemoveParticipant(session_id="S", user="ada", participant="bob")
    assert decide(story.state, again, now_ms=1, known=Known(took_part=True)) == []
    with pytest.raises(NotFound) as refusal:
        decide(story.state, again, now_ms=1)
    assert refusal.value.code == "participant_not_found"
    with pytest.raises(Conflict):
        story.do(RemoveParticipant(session_id="S", user="ada", participant="ada"))
    with pytest.raises(Conflict):
        _add(story, "ada", "viewer")


def test_whoever_has_a_valid_link_may_join_and_a_higher_role_is_kept() -> None:
    story = ready()
    _link(story, "l", expires_ms=story.now + 1000)
    _add(story, "bob", "collaborator")
    assert _join(story, "eve") == ["ParticipantAdded"]
    assert _join(story, "eve") == []
    assert (_join(story, "bob"), _join(story, "ada")) == ([], [])
    assert [story.s.role_of(user) for user in ("eve", "bob", "ada")] == ["viewer", "collaborator", "owner"]
    story.now += 1000
    for token in ("l", "another"):
        with pytest.raises(NotFound) as refusal:
            _join(story, "new", token)
        assert refusal.value.code == "link_not_found"


def test_a_revoked_link_ends_the_part_of_those_who_came_by_it_only() -> None:
    story = ready()
    _link(story, "l")
    _add(story, "bob", "viewer")
    for user in ("eve", "eva"):
        _join(story, user)
    revoke = RevokeShareLink(session_id="S", user="ada", link_id="l")
    assert kinds(story.do(revoke)) == ["ShareLinkRevoked"]
    assert [item.user for item in story.s.participants] == ["bob"]
    assert story.settle() == [facts.ParticipantRemoved(user=user, by="ada") for user in ("eve", "eva")]
    assert (story.do(revoke), story.settle()) == ([], [])
    assert [item.user for item in story.s.participants] == ["bob"]
    with pytest.raises(NotFound):
        _join(story, "eve")
    with pytest.raises(Conflict):
        _link(story, "l")


@pytest.mark.parametrize("ended", [False, True])
def test_a_ledger_that_dies_half_way_through_a_revocation_names_those_who_left_afterwards(ended: bool) -> None:
    story = ready()
    _link(story, "l")
    for user in ("eve", "eva", "evi"):
        _join(story, user)
    story.do(RevokeShareLink(session_id="S", user="ada", link_id="l"))
    assert story.s.participants == ()
    story.happen(react(story.s, story.now)[0])  # and the ledger is killed
    _add(story, "eva", "viewer")
    if ended:
        story.do(TerminateSession(session_id="S", user="ada"))
    story.state = unpack(pack(story.s))
    assert not is_at_rest(story.s)
    assert [data for data in story.settle() if isinstance(data, facts.ParticipantRemoved)] == [
        facts.ParticipantRemoved(user="evi", by="ada")
    ]
    assert is_at_rest(story.s)
    assert [item.user for item in story.s.participants] == ["eva"]  # let in again in between


def test_participants_and_links_are_bounded() -> None:
    story = ready()
    for number in range(limits.SHARE_LINKS):
        _link(story, f"l{number}")
    with pytest.raises(TooMany):
        _link(story, "one more")
    for number in range(limits.PARTICIPANTS):
        _add(story, f"u{number}", "viewer")
    with pytest.raises(TooMany):
        _join(story, "one more", "l1")
    assert _add(story, "u1", "collaborator") == ["ParticipantAdded"]


def test_a_session_can_be_asked_for_again_after_it_was_renamed_and_its_policy_changed() -> None:
    story = Story(title="first")
    story.do(RenameSession(session_id="S", user="ada", title=" second "))
    story.do(ChangePolicy(session_id="S", user="ada", policy=facts.SessionPolicy(question_timeout_s=1)))
    assert story.do(CreateSession(session_id="S", owner="ada", model="m/x", title="first")) == []
    assert story.s.title == "second"
    with pytest.raises(Unprocessable):
        story.do(RenameSession(session_id="S", user="ada", title=" "))


def test_the_same_change_made_twice_at_different_times_is_two_facts() -> None:
    story = ready()
    ids: set[str] = set()
    for title in ("one", "two", "one"):
        (fact,) = decide(story.state, RenameSession(session_id="S", user="ada", title=title), now_ms=1)
        ids.add(stamp("S", story.state, fact, 1).id)
        story.happen(fact)
    assert len(ids) == 3


# -- commands --------------------------------------------------------------------------------------------------


def _command(request_id: str = "c1", command: str = "list_commands", **fields: object) -> RequestCommand:
    return RequestCommand(session_id="S", user="ada", request_id=request_id, command=command, **fields)  # type: ignore[arg-type]


def test_turns_wait_for_a_command_and_go_on_when_it_has_its_result() -> None:
    story = ready()
    assert kinds(story.do(_command())) == ["CommandRequested"]
    assert story.do(_command()) == []
    story.prompt()
    assert story.settle() == []
    story.runner(agent.CommandCompleted(request_id="c1", result={"commands": []}))
    assert kinds(story.settle()) == ["TurnDispatched"]
    assert story.do(_command()) == []
    with pytest.raises(Unprocessable, match="used before"):
        story.do(_command(command="unrevert"))


def test_a_command_while_a_turn_runs_is_refused() -> None:
    with pytest.raises(Conflict) as refusal:
        running().do(_command())
    assert refusal.value.code == "turn_running"


def test_a_command_brings_a_sandbox_and_has_a_named_time_out() -> None:
    story = ready()
    story.lose()
    assert story.settle() == []
    story.do(_command())
    assert kinds(story.settle()) == ["SandboxRequested"]
    due = story.s.commands[0].due_ms
    assert due == story.now + limits.COMMAND_DEADLINE_MS
    story.now = due
    (timed_out,) = [data for data in story.settle() if isinstance(data, facts.CommandTimedOut)]
    assert "did not come up" in timed_out.detail
    assert story.s.commands == ()


def test_a_command_of_a_session_that_ends_has_an_end_too() -> None:
    story = ready()
    story.do(_command())
    story.do(TerminateSession(session_id="S", user="ada"))
    assert kinds(story.settle()) == ["CommandTimedOut", "SandboxReleaseRequested"]
    assert is_at_rest(story.s)
    with pytest.raises(Conflict, match="takes no more commands"):
        story.do(_command("c2"))


def test_a_revert_names_its_message_turn_and_conversation() -> None:
    story = ready()
    with pytest.raises(Unprocessable):
        decide(story.state, _command(command="revert"), now_ms=1)
    revert = _command(command="revert", message_id="m")
    with pytest.raises(NotFound):
        decide(story.state, revert, now_ms=1)
    target = Known(target=Target(message_id="m", turn_id="t", channel="slack:x"))
    (asked,) = decide(story.state, revert, now_ms=1, known=target)
    assert isinstance(asked, facts.CommandRequested)
    assert (asked.message_id, asked.turn_id, asked.channel) == ("m", "t", "slack:x")
    story.happen(asked)
    assert story.do(revert) == []


def test_commands_that_wait_are_bounded() -> None:
    story = ready()
    for number in range(limits.PENDING_COMMANDS):
        story.do(_command(f"c{number}"))
    with pytest.raises(TooMany):
        story.do(_command("one more"))


# -- saved work, imports ---------------------------------------------------------------------------------------


def test_a_runner_gets_the_latest_saved_work_of_its_own_session() -> None:
    story = running()
    for name in ("sessions/S/saved/t1", "sessions/OTHER/saved/t1"):
        work = agent.WorkRef(object=name, bytes=1, sha256="x")
        story.runner(agent.WorkSaved(turn_id="t1", work=work))
    given = attached(story.s, 1)
    assert given.work is not None
    assert (given.work.object, given.policy, given.base_commit) == ("sessions/S/saved/t1", story.s.policy, "base")


def _imported(work: agent.WorkRef | None = None) -> Story:
    story = Story.__new__(Story)
    story.state, story.seq, story.now, story.log = None, 0, 1_000, []
    story.happen(facts.SessionImported(owner="ada", model="m/x", source_session="T", source_seq=9, work=work))
    return story


def _event(kind: str, **data: object) -> facts.EventImported:
    return facts.EventImported(type=kind, version=1, time="2026-01-01T00:00:00.000Z", source_seq=1, data=data)


def test_an_import_begins_nothing_before_it_is_complete() -> None:
    work = agent.WorkRef(object="sessions/S/saved/fork", bytes=1, sha256="x", base_commit="c")
    story = _imported(work)
    assert (story.settle(), story.s.status) == ([], "requested")
    with pytest.raises(Conflict, match="imported"):
        story.prompt()
    for event in (_event("agent.session_titled", title="Theirs"), _event("fact.turn_dispatched", turn_id="t")):
        story.happen(event)
    assert (story.s.title, story.s.turn) == ("Theirs", None)
    story.happen(facts.ImportCompleted(events=2))
    assert (story.settle(), story.s.status, is_at_rest(story.s)) == ([], "hibernated", True)
    story.prompt()
    (asked,) = story.settle()
    assert isinstance(asked, facts.SandboxRequested)
    assert asked.epoch == 1
    story.boot()
    assert kinds(story.settle()) == ["TurnDispatched"]
    assert attached(story.s, 1).work == work
    assert attached(story.s, 1).base_commit == "c"


def test_an_import_that_was_given_up_ends() -> None:
    story = _imported()
    due = next_due(story.s)
    assert due is not None
    story.now = due
    assert kinds(story.settle()) == ["SessionFailed"]
    assert is_at_rest(story.s)


def test_an_event_of_another_state_is_no_session() -> None:
    none: SessionState | None = evolve(None, stamp("S", None, _event("agent.session_titled", title="x"), 1))
    assert none is None
    assert react(_imported().s, 1_000) == []
