"""Claims about chains of prompts that agents cause: how far each is from a person, and that there is an end. Pure."""

import pytest
from valet_protocol.errors import TooMany
from valet_protocol.events import agent, facts
from valet_protocol.requests import AnswerQuestion, ReportChild, RequestChild
from valet_session_ledger import limits
from valet_session_ledger.state import pack, unpack
from valet_session_ledger.story import Story, kinds, ready, running


def _sender(hops: int) -> facts.Sender:
    return facts.Sender(session_id="T", hops=hops)


def _turn(story: Story, prompt_id: str, sender: facts.Sender | None = None) -> int:
    """A whole turn of a prompt; how far it was from a person."""
    story.prompt(prompt_id, sender=sender)
    story.settle()
    story.start()
    hops = story.s.hops
    story.end()
    return hops


def test_two_agents_that_only_answer_each_other_come_to_an_end_until_a_person_says_something() -> None:
    one, other = ready(), ready()
    _turn(one, "from a person")
    for number in range(limits.HOPS):
        _turn(other, f"p{number}", _sender(one.s.hops + 1))
        one, other = other, one
    with pytest.raises(TooMany) as refusal:
        _turn(other, "one more", _sender(one.s.hops + 1))
    assert refusal.value.code == "too_many_hops"
    assert "ask" in str(refusal.value)
    with pytest.raises(TooMany):
        one.do(RequestChild(session_id="S", request_id="r", prompt="Go on for me"))
    assert _turn(one, "a person again") == 0
    _turn(other, "and on", _sender(one.s.hops + 1))
    assert other.s.hops == 1


def test_a_message_that_was_taken_is_answered_alike_when_it_comes_again_from_further_away() -> None:
    story = ready()
    story.prompt("p", sender=_sender(limits.HOPS))
    story.prompt("p", sender=_sender(limits.HOPS + 1))
    assert len(story.s.queue) == 1


def test_collected_prompts_have_the_distance_of_the_furthest() -> None:
    story = ready()
    for number, hops in enumerate((3, 9, 5)):
        story.prompt(f"p{number}", mode="collect", sender=_sender(hops))
    story.now += limits.COLLECT_LONGEST_MS
    story.settle()
    assert (len(story.s.receipts), story.s.queue, story.s.hops) == (3, (), 9)


def test_what_is_steered_into_a_turn_counts_for_it_and_a_person_who_steers_is_there_again() -> None:
    story = running()
    story.prompt("agents", mode="steer", sender=_sender(7))
    story.settle()
    assert story.s.hops == 7
    story.prompt("nearer", mode="steer", sender=_sender(2))
    story.settle()
    assert story.s.hops == 7
    story.prompt("persons", mode="steer")
    story.settle()
    assert story.s.hops == 0


def test_a_persons_answer_begins_again_and_a_default_does_not() -> None:
    story = running()
    story.end()
    for prompt_id, answers, hops in (("d", False, 50), ("p", True, 0)):
        story.prompt(prompt_id, sender=_sender(50))
        story.settle()
        story.start()
        story.ask(f"q-{prompt_id}")
        if answers:
            story.do(AnswerQuestion(session_id="S", user="ada", question_id=f"q-{prompt_id}", answers=[["yes"]]))
        else:
            story.now = story.s.questions[0].due_ms
            assert "QuestionAnswered" in kinds(story.settle())
        assert story.s.hops == hops
        story.end()


def test_a_default_for_a_lost_turn_is_as_far_from_a_person_as_that_turn_was() -> None:
    story = ready()
    story.prompt("p", sender=_sender(40))
    story.settle()
    story.start()
    story.ask("q")
    story.lose()
    story.settle()
    story.boot()
    story.now = story.s.questions[0].due_ms
    story.settle()
    assert story.s.turn is not None
    assert story.s.hops == 40


def test_what_a_child_did_is_one_hop_from_the_prompt_that_tells_of_it() -> None:
    story = ready()
    story.prompt("p", sender=_sender(10))
    story.settle()
    story.start()
    (asked,) = story.do(RequestChild(session_id="S", request_id="r", prompt="Do it", notify=True))
    assert isinstance(asked, facts.ChildRequested)
    assert [child.hops for child in story.s.children] == [11]
    news = ReportChild(session_id="S", child_id=asked.child_id, change="turn_completed", child_seq=9, hops=11)
    story.do(news)
    (told,) = [data for data in story.settle() if isinstance(data, facts.PromptAccepted)]
    assert told.sender is not None
    assert told.sender.hops == 12
    story.end()
    story.now += limits.COLLECT_LONGEST_MS
    story.settle()
    assert story.s.hops == 12


def test_a_parent_hears_how_far_from_a_person_its_child_was() -> None:
    story = Story(ancestors=["P"])
    story.settle()
    story.boot()
    _turn(story, "p", _sender(21))
    assert [news.hops for news in story.s.news] == [21]
    story.runner(agent.SessionTitled(title="x"))
    assert [news.hops for news in story.s.news] == [21]


def test_the_distance_is_in_the_facts_so_it_survives_a_restart() -> None:
    story = ready()
    story.prompt("p", sender=_sender(30))
    story.settle()
    assert unpack(pack(story.s)).hops == 30
    (fact,) = [data for data in story.log if isinstance(data, facts.PromptAccepted)]
    assert fact.sender == _sender(30)
