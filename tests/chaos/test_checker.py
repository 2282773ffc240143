"""The checker finds what it is there to find: each test doctors a faultless history in one way.

Bug class: a checker that cannot fail.
"""

import msgspec
import pytest
from chaos.history import (
    FIRST,
    SECOND,
    SESSION,
    TEXT,
    act,
    faultless,
    patch,
    received,
    stored,
    with_received,
    with_session,
)
from valet_local.chaos.checker import RULES, check
from valet_local.chaos.records import ActKind, FaultRecord, History


def rules(history: History) -> list[str]:
    return [violation.rule for violation in check(history)]


def without(history: History, *types: str, seq: int | None = None) -> History:
    kept = [event for event in history.stream if event.type not in types and event.seq != seq]
    return msgspec.structs.replace(history, stream=kept)


def added(history: History, *events: object) -> History:
    stream = sorted([*history.stream, *events], key=lambda event: event.seq)  # type: ignore[attr-defined]
    return msgspec.structs.replace(history, stream=stream, clients=[])


def fault(**changed: object) -> FaultRecord:
    plain = FaultRecord(number=1, kind="kill", target="nats", began=1.0, ended=1.0, recovered=0.5)
    return msgspec.structs.replace(plain, **changed)


def test_a_faultless_history_has_no_violation() -> None:
    assert check(faultless()) == []


def test_every_rule_says_what_it_is_for() -> None:
    assert all(rule.__doc__ for rule in RULES)


# -- clients


def test_a_lost_event_is_found_with_its_client_and_sequence() -> None:
    history = faultless()
    got = [event for event in history.clients[0].received if event.seq != 7]
    [violation] = check(with_received(history, got))
    assert (violation.rule, violation.session_id, violation.seq) == ("no client misses an event", SESSION, 7)
    assert "client one" in violation.what
    assert "agent.text_completed" in violation.what


def test_an_event_lost_at_the_end_is_found() -> None:
    history = faultless()
    assert rules(with_received(history, history.clients[0].received[:-1])) == ["no client misses an event"]


def test_a_doubled_event_is_found() -> None:
    history = faultless()
    got = history.clients[0].received
    assert rules(with_received(history, [*got[:5], got[4], *got[5:]])) == ["no client gets an event twice"]


def test_events_out_of_order_are_found() -> None:
    history = faultless()
    got = list(history.clients[0].received)
    got[1], got[2] = got[2], got[1]
    assert rules(with_received(history, got)) == ["every client gets events in order"]


def test_an_event_that_is_not_in_the_log_is_found() -> None:
    history = faultless()
    got = [*history.clients[0].received, received(stored(99, "agent.todo_updated"))]
    assert rules(with_received(history, got)) == ["no client gets what is not in the log"]


def test_another_event_at_the_same_sequence_is_found() -> None:
    history = faultless()
    got = list(history.clients[0].received)
    got[0] = msgspec.structs.replace(got[0], id="another")
    assert rules(with_received(history, got)) == ["no client gets what is not in the log"]


def test_a_gap_in_streamed_text_is_found() -> None:
    history = faultless()
    got = [event for event in history.clients[0].received if event.seq != 5]
    assert rules(with_received(history, got)) == ["streamed text has no gap"]


def test_a_missing_end_of_streamed_text_is_found() -> None:
    history = faultless()
    got = [event for event in history.clients[0].received if event.seq != 6]
    assert rules(with_received(history, got)) == ["streamed text has no gap"]


def test_a_gap_is_fine_where_the_client_was_cut_and_the_pieces_were_purged_meanwhile() -> None:
    history = faultless()
    got = [
        msgspec.structs.replace(event, connection=int(event.seq > 5))
        for event in history.clients[0].received
        if event.seq != 6
    ]
    assert check(with_received(history, got, connections=2)) == []


def test_a_piece_that_the_log_still_has_is_missed_even_by_a_client_that_was_cut() -> None:
    history = faultless()
    history = msgspec.structs.replace(
        history, stream=sorted([*history.stream, *history.tapped], key=lambda event: event.seq)
    )
    got = [
        msgspec.structs.replace(event, connection=int(event.seq > 5))
        for event in history.clients[0].received
        if event.seq != 6
    ]
    assert rules(with_received(history, got, connections=2)) == ["no client misses an event"]


def test_streamed_text_that_is_not_the_stored_text_is_found() -> None:
    history = faultless()
    got = [
        msgspec.structs.replace(event, text="xyz") if event.seq == 5 else event for event in history.clients[0].received
    ]
    assert "streamed text is the stored text" in rules(with_received(history, got))


def test_leading_white_space_that_the_agent_trims_is_no_difference() -> None:
    history = faultless()
    got = [
        msgspec.structs.replace(event, text=" " + TEXT[:4])
        if event.seq == 5
        else msgspec.structs.replace(event, offset=5)
        if event.seq == 6
        else event
        for event in history.clients[0].received
    ]
    assert check(with_received(history, got)) == []


# -- prompts and answers


def test_an_accepted_prompt_that_is_not_in_the_log_is_found() -> None:
    history = faultless()
    history = msgspec.structs.replace(history, acts=[*history.acts, act("prompt", prompt_id="prompt-3", seq=50)])
    assert rules(history) == ["an accepted prompt is in the log once"]


def test_a_prompt_whose_turn_never_ends_is_found() -> None:
    history = without(msgspec.structs.replace(faultless(), clients=[]), seq=30)
    found = check(with_session(history, patch=patch(**{FIRST: 1, SECOND: 1})))
    assert [(one.rule, one.seq) for one in found] == [("every accepted prompt is answered or ended", 20)]
    assert "prompt-2" in found[0].what


def test_a_prompt_that_never_had_a_turn_is_found() -> None:
    waiting = stored(40, "fact.prompt_accepted", prompt_id="prompt-3", content="x")
    assert rules(with_session(added(faultless(), waiting), prompts={})) == [
        "every accepted prompt is answered or ended"
    ]


@pytest.mark.parametrize(
    "end",
    [
        stored(41, "fact.prompt_withdrawn", prompt_id="prompt-3"),
        stored(41, "fact.session_terminated"),
        stored(41, "agent.prompt_taken", turn_id="turn-2", prompt_id="prompt-3", outcome="delivered"),
    ],
    ids=lambda event: event.type,
)
def test_a_prompt_that_was_withdrawn_dropped_or_steered_has_its_end(end: object) -> None:
    waiting = stored(40, "fact.prompt_accepted", prompt_id="prompt-3", content="x")
    history = with_session(added(faultless(), waiting, end), prompts={})
    assert [rule for rule in rules(history) if "prompt" in rule] == []


def test_a_prompt_that_the_api_lists_as_waiting_is_found() -> None:
    prompts = {"prompt-1": "done", "prompt-2": "queued"}
    assert rules(with_session(faultless(), prompts=prompts)) == ["every accepted prompt is answered or ended"]


def test_a_prompt_that_the_api_does_not_list_is_found() -> None:
    assert rules(with_session(faultless(), prompts={"prompt-1": "done"})) == [
        "every accepted prompt is answered or ended"
    ]


def test_a_prompt_with_two_turns_is_found() -> None:
    again = stored(40, "fact.turn_dispatched", prompt_id="prompt-1", turn_id="turn-3", content="x")
    assert "a prompt has one turn" in rules(added(faultless(), again))


def test_a_withdrawn_prompt_that_becomes_a_turn_is_found() -> None:
    withdrawn = stored(15, "fact.prompt_withdrawn", prompt_id="prompt-2")
    assert "a withdrawn prompt never becomes a turn" in rules(added(faultless(), withdrawn))


def test_an_edit_that_was_granted_and_not_dispatched_is_found() -> None:
    edited = stored(15, "fact.prompt_edited", prompt_id="prompt-2", content="please mark t0000000009")
    late = msgspec.structs.replace(edited, seq=40)
    before = msgspec.structs.replace(faultless().stream[9], seq=14)
    assert before.type == "fact.prompt_accepted"
    history = added(without(faultless(), seq=20), before, edited)
    assert "a granted change counts" in rules(history)
    assert "nothing is changed once it has a turn" in rules(added(faultless(), late))


@pytest.mark.parametrize("kind", ["edit", "withdraw"])
def test_a_change_that_was_granted_and_is_not_in_the_log_is_found(kind: ActKind) -> None:
    history = faultless()
    granted = act(kind, 200, about="prompt-2")
    assert rules(msgspec.structs.replace(history, acts=[granted])) == ["a granted change counts"]
    refused = act(kind, 409, about="prompt-2")
    assert rules(msgspec.structs.replace(history, acts=[refused])) == []


def test_a_command_without_a_result_is_found() -> None:
    asked = stored(40, "fact.command_requested", request_id="r", command="list_commands")
    assert rules(added(faultless(), asked)) == ["every command ends"]
    for end in ("agent.command_completed", "fact.command_timed_out"):
        assert rules(added(faultless(), asked, stored(41, end, request_id="r"))) == []


def test_a_question_with_two_answers_is_found() -> None:
    again = stored(40, "fact.question_answered", question_id="que-turn-1", answered_by="default")
    assert "a question is answered once" in rules(added(faultless(), again))


def test_an_answer_that_was_taken_and_does_not_count_is_found() -> None:
    history = faultless()
    history = msgspec.structs.replace(history, acts=[*history.acts, act("answer", 200, about="que-other")])
    assert rules(history) == ["an answer that was taken counts"]


def test_an_event_that_is_stored_twice_is_found() -> None:
    again = msgspec.structs.replace(faultless().stream[3], seq=45)
    assert "no event is stored twice" in rules(added(faultless(), again))


# -- effects


def test_a_double_effect_is_found() -> None:
    [violation] = check(with_session(faultless(), patch=patch(**{FIRST: 2, SECOND: 1})))
    assert violation.rule == "an effect happens once"
    assert f"{FIRST} was marked 2 times" in violation.what


def test_a_completed_turn_without_its_effect_is_found() -> None:
    assert rules(with_session(faultless(), patch=patch(**{FIRST: 1}))) == ["an effect happens once"]


def test_an_interrupted_turn_may_have_had_its_effect_or_not_but_not_twice() -> None:
    history = faultless()
    cut_short = [
        stored(30, "fact.turn_interrupted", turn_id="turn-2", reason="runner_lost") if event.seq == 30 else event
        for event in history.stream
    ]
    history = msgspec.structs.replace(history, stream=cut_short, clients=[])
    for count, fine in ((0, True), (1, True), (2, False)):
        found = rules(with_session(history, patch=patch(**{FIRST: 1, SECOND: count})))
        assert (found == []) is fine


def test_an_effect_of_what_was_never_dispatched_is_found() -> None:
    marks = {FIRST: 1, SECOND: 1, "t0000000003": 1}
    assert rules(with_session(faultless(), patch=patch(**marks))) == ["an effect happens once"]


def test_a_reverted_turn_may_have_lost_its_effect_and_the_one_before_it_may_not() -> None:
    revert = stored(40, "fact.command_requested", command="revert", turn_id="turn-2", request_id="r")
    history = added(faultless(), revert, stored(41, "agent.command_completed", request_id="r"))
    assert rules(with_session(history, patch=patch(**{FIRST: 1}))) == []
    assert rules(with_session(history, patch=patch(**{SECOND: 1}))) == ["an effect happens once"]


def test_a_diff_that_is_cut_off_cannot_pass() -> None:
    assert rules(with_session(faultless(), truncated=True)) == ["an effect happens once"]


# -- the whole


def test_a_session_that_does_not_rest_is_found() -> None:
    history = with_session(faultless(), at_rest=False, unrest="2 prompts wait")
    [violation] = check(history)
    assert violation.rule == "every session comes to rest"
    assert "2 prompts wait" in violation.what


def test_a_session_that_has_failed_is_found() -> None:
    assert rules(with_session(faultless(), status="failed")) == ["no session fails"]


def test_a_session_whose_last_prompt_is_not_completed_is_found() -> None:
    assert rules(with_session(faultless(), closing="interrupted")) == ["every session has a future"]


def test_read_models_that_differ_from_a_rebuild_are_found() -> None:
    history = msgspec.structs.replace(faultless(), rebuild="messages: 1 row differs")
    assert rules(history) == ["read models equal a rebuild"]


@pytest.mark.parametrize("status", [None, 500, 503])
def test_a_request_without_a_proper_answer_is_found(status: int | None) -> None:
    history = faultless()
    history = msgspec.structs.replace(history, acts=[*history.acts, act("abort", status)])
    assert rules(history) == ["every request is answered"]


@pytest.mark.parametrize("status", [202, 404, 409, 422])
def test_a_refusal_is_an_answer(status: int) -> None:
    history = faultless()
    history = msgspec.structs.replace(history, acts=[*history.acts, act("abort", status)])
    assert check(history) == []


def test_a_part_that_does_not_come_back_is_found() -> None:
    history = msgspec.structs.replace(faultless(), faults=[fault(recovered=None, gave_up=True)])
    assert rules(history) == ["every part comes back"]


def test_a_fault_on_the_way_of_the_event_bus_excuses_a_purged_piece_and_one_elsewhere_does_not() -> None:
    history = faultless()
    got = [event for event in history.clients[0].received if event.seq != 5]
    history = with_received(history, got)
    struck = [fault(target="nats", began=4.5, ended=4.6)]
    assert check(msgspec.structs.replace(history, faults=struck)) == []
    struck = [fault(target="portal", began=4.5, ended=4.6)]
    assert rules(msgspec.structs.replace(history, faults=struck)) == ["streamed text has no gap"]
