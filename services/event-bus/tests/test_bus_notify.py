"""Claims about who is told of what, without any I/O."""

from typing import Any

import msgspec
from valet_event_bus import limits, notify
from valet_event_bus.notify import Notification, QuestionSettled, digest
from valet_protocol import codec
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import derived_id

SESSION = derived_id("session")


class Log:
    """Events in order, each with its sequence."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, *all_data: Data, epoch: int | None = None) -> "Log":
        for data in all_data:
            seq = len(self.events) + 1
            event = codec.new_event(data, id=derived_id(seq), session_id=SESSION, now_ms=seq, epoch=epoch)
            self.events.append(_at(event, seq))
        return self

    def told(self, attentive: frozenset[str] = frozenset(), silent_until: int = 0) -> list[tuple[str, str]]:
        """(kind, user) of every notification."""
        return [(one.kind, one.user) for one in self.notifications(attentive, silent_until)]

    def notifications(self, attentive: frozenset[str] = frozenset(), silent_until: int = 0) -> list[Notification]:
        result = digest(self.events, {}, lambda _: attentive, silent_until)
        return [one for one in result.outcomes if isinstance(one, Notification)]


def _at(event: Event, seq: int) -> Event:
    return codec.decode(codec.encode(event, source="/test").payload, seq)


def session(*people: tuple[str, Any]) -> Log:
    log = Log().add(facts.SessionRequested(owner="olga", title="Fix it", model="a/b"))
    for user, role in people:
        log.add(facts.ParticipantAdded(user=user, role=role, by=user))
    return log


def accepted(prompt: str, author: str) -> facts.PromptAccepted:
    return facts.PromptAccepted(prompt_id=prompt, content=f"do {prompt}", author=author, model="a/b")


def dispatched(turn: str, author: str, *prompts: str) -> facts.TurnDispatched:
    ids = list(prompts)
    return facts.TurnDispatched(
        turn_id=turn,
        prompt_id=ids[0],
        prompt_ids=ids if len(ids) > 1 else [],
        content="do it",
        model="a/b",
        author=author,
    )


def asked(kind: Any = "question") -> agent.QuestionAsked:
    return agent.QuestionAsked(question_id="Q", kind=kind, questions=[agent.Question(question="Which one?")])


def test_a_question_is_for_those_who_may_answer() -> None:
    log = session(("cleo", "collaborator"), ("vera", "viewer")).add(asked())
    assert log.told() == [("question_asked", "olga"), ("question_asked", "cleo")]
    first = log.notifications()[0]
    assert (first.title, first.text, first.question_id, first.seq) == ("Fix it", "Which one?", "Q", 4)
    assert session().add(asked("permission")).told() == [("permission_asked", "olga")]


def test_a_question_reaches_even_those_who_look() -> None:
    assert session().add(asked()).told(frozenset({"olga"})) == [("question_asked", "olga")]


def test_a_turns_end_is_for_its_author_and_the_owner_unless_they_look() -> None:
    log = session(("cleo", "collaborator"), ("carl", "collaborator")).add(
        accepted("p1", "cleo"), dispatched("t1", "cleo", "p1"), agent.TurnEnded(turn_id="t1", status="completed")
    )
    assert log.told() == [("turn_completed", "cleo"), ("turn_completed", "olga")]
    assert log.told(frozenset({"olga"})) == [("turn_completed", "cleo")]
    assert log.told(frozenset({"olga", "cleo"})) == []


def test_a_childs_turns_are_for_those_who_prompted_it_and_what_an_agent_wrote_makes_nobody_wait() -> None:
    log = Log().add(facts.SessionRequested(owner="olga", model="a/b", parent="P", ancestors=["P"]))
    by_agent = msgspec.structs.replace(accepted("p1", "olga"), sender=facts.Sender(session_id="P"))
    log.add(by_agent, dispatched("t1", "olga", "p1"), agent.TurnEnded(turn_id="t1", status="completed"))
    assert log.told() == []
    log.add(accepted("p2", "olga"), dispatched("t2", "olga", "p2"), agent.TurnEnded(turn_id="t2", status="completed"))
    assert log.told() == [("turn_completed", "olga")]


def test_collected_and_steered_prompts_make_all_their_authors_wait_for_the_turn() -> None:
    team = ("cleo", "collaborator"), ("carl", "collaborator"), ("dora", "collaborator"), ("egon", "collaborator")
    log = session(*team).add(
        accepted("p1", "cleo"),
        accepted("p2", "carl"),
        accepted("p3", "dora"),
        accepted("p4", "egon"),
        dispatched("t1", "cleo", "p1", "p2"),
        agent.PromptTaken(turn_id="t1", prompt_id="p3", outcome="delivered"),
        agent.PromptTaken(turn_id="t1", prompt_id="p4", outcome="missed"),
        agent.TurnEnded(turn_id="t1", status="failed", error=agent.AgentError(name="APIError", message="no credit")),
    )
    assert sorted(user for _, user in log.told()) == ["carl", "cleo", "dora", "olga"]
    assert {(one.kind, one.text) for one in log.notifications()} == {("turn_failed", "no credit")}


def test_a_turn_ends_once() -> None:
    log = session().add(
        accepted("p1", "olga"),
        dispatched("t1", "olga", "p1"),
        facts.TurnInterrupted(turn_id="t1", reason="runner_lost", detail="The sandbox is gone."),
        agent.TurnEnded(turn_id="t1", status="completed"),
        agent.TurnEnded(turn_id="never-dispatched", status="completed"),
    )
    assert log.told() == [("turn_interrupted", "olga")]
    assert log.notifications()[0].text == "The sandbox is gone."


def test_what_a_replaced_runner_says_is_for_nobody() -> None:
    log = session().add(accepted("p1", "olga"), dispatched("t1", "olga", "p1"))
    log.add(facts.RunnerAttached(epoch=2, runner_version="1"))
    log.add(agent.TurnEnded(turn_id="t1", status="completed"), asked(), epoch=1)
    assert log.told() == []
    log.add(agent.TurnEnded(turn_id="t1", status="completed"), epoch=2)
    assert log.told() == [("turn_completed", "olga")]


def test_somebody_let_in_is_told_and_somebody_who_came_by_a_link_knows() -> None:
    log = session().add(
        facts.ParticipantAdded(user="cleo", role="collaborator", by="olga"),
        facts.ParticipantAdded(user="vera", role="viewer", by="vera", link_id="L"),
    )
    assert log.told() == [("participant_added", "cleo")]
    assert log.notifications()[0].text == "You take part as collaborator."


def test_who_was_removed_is_told_nothing_more() -> None:
    log = session(("cleo", "collaborator")).add(
        accepted("p1", "cleo"),
        dispatched("t1", "cleo", "p1"),
        facts.ParticipantRemoved(user="cleo", by="olga"),
        agent.TurnEnded(turn_id="t1", status="completed"),
        asked(),
    )
    assert log.told() == [("turn_completed", "olga"), ("question_asked", "olga")]


def test_a_failed_session_is_for_those_who_work_in_it() -> None:
    log = session(("cleo", "collaborator"), ("vera", "viewer")).add(
        facts.SessionFailed(code="clone_failed", detail="no such repository")
    )
    assert log.told() == [("session_failed", "olga"), ("session_failed", "cleo")]


def test_the_title_is_a_persons_before_the_agents() -> None:
    untitled = Log().add(facts.SessionRequested(owner="olga", model="a/b"), agent.SessionTitled(title="Agent's"))
    assert untitled.add(asked()).notifications()[0].title == "Agent's"
    renamed = untitled.add(facts.SessionRenamed(title="Mine", by="olga"), agent.SessionTitled(title="Again"))
    assert renamed.add(asked()).notifications()[-1].title == "Mine"


def test_an_answered_or_dropped_question_is_settled() -> None:
    log = session().add(
        facts.QuestionAnswered(question_id="Q", answers=[["Yes"]], answered_by="person", user="olga"),
        agent.QuestionResolved(question_id="R", outcome="dropped"),
    )
    outcomes = digest(log.events, {}, lambda _: frozenset(), 0).outcomes
    assert outcomes == [
        QuestionSettled(session_id=SESSION, question_id="Q"),
        QuestionSettled(session_id=SESSION, question_id="R"),
    ]


def test_the_same_event_is_the_same_notification_and_each_users_is_their_own() -> None:
    log = session(("cleo", "collaborator")).add(asked())
    first, again = log.notifications(), log.notifications()
    assert first == again
    assert len({one.id for one in first}) == 2


def test_of_what_was_there_before_nobody_is_told_but_it_is_known() -> None:
    log = session(("cleo", "collaborator")).add(accepted("p1", "cleo"), dispatched("t1", "cleo", "p1"), asked())
    log.add(agent.TurnEnded(turn_id="t1", status="completed"))
    assert log.told(silent_until=5) == [("turn_completed", "cleo"), ("turn_completed", "olga")]


def test_folding_in_pieces_is_folding_at_once() -> None:
    log = session(("cleo", "collaborator")).add(
        accepted("p1", "cleo"), dispatched("t1", "cleo", "p1"), agent.TurnEnded(turn_id="t1", status="completed")
    )
    whole = digest(log.events, {}, lambda _: frozenset(), 0)
    known: dict[str, notify.Audience] = {}
    outcomes: list[object] = []
    for event in log.events:
        step = digest([event], known, lambda _: frozenset(), 0)
        known |= step.audiences
        outcomes += step.outcomes
    assert (known, outcomes) == (whole.audiences, whole.outcomes)
    assert (known[SESSION].prompts, known[SESSION].turns) == ({}, {})  # nothing piles up


def test_a_text_is_short_and_can_be_stored() -> None:
    long = agent.QuestionAsked(
        question_id="Q", kind="question", questions=[agent.Question(question="\0" + "x" * 10_000)]
    )
    (one,) = session().add(long).notifications()
    assert len(one.text) == limits.NOTIFICATION_TEXT
    assert one.text.startswith("x")
