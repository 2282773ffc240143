"""Claims about the made-up log of the benchmarks."""

from collections import Counter
from itertools import islice

from valet_local.bench import events
from valet_protocol import codec
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event


def encoded(many: list[Event]) -> list[bytes]:
    return [codec.encode(event, source="/bench").payload for event in many]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first = encoded(list(events.history(sessions=3, count=500, seed=1)))
    assert first == encoded(list(events.history(sessions=3, count=500, seed=1)))
    assert first != encoded(list(events.history(sessions=3, count=500, seed=2)))


def test_every_event_is_one_that_readers_understand() -> None:
    for event in events.history(sessions=2, count=300, seed=1):
        assert codec.decode(codec.encode(event, source="/bench").payload) == event


def test_a_history_has_exactly_the_events_and_sessions_asked_for_and_no_id_twice() -> None:
    history = list(events.history(sessions=4, count=2000, seed=1))
    assert len(history) == 2000
    assert len({event.session_id for event in history}) == 4
    assert len({event.id for event in history}) == 2000


def test_every_session_begins_as_real_ones_do_and_ends_each_turn_before_the_next() -> None:
    story = list(islice(events.Story(0, 1).whole(), 400))
    assert isinstance(story[0].data, facts.SessionRequested)
    running: str | None = None
    for event in story:
        if isinstance(event.data, facts.TurnDispatched):
            assert running is None
            running = event.data.turn_id
        elif isinstance(event.data, agent.TurnEnded):
            assert running == event.data.turn_id
            running = None
        elif isinstance(event.data, agent.MessageCreated | agent.ToolUpdated):
            assert event.turn == running
    assert [event.time_ms for event in story] == sorted(event.time_ms for event in story)


def test_what_is_replayed_is_of_one_session_and_of_its_agent_alone() -> None:
    replayed = list(events.replayable("01J00000000000000000000000", count=1000, seed=1))
    assert len(replayed) == 1000
    assert {event.session_id for event in replayed} == {"01J00000000000000000000000"}
    kinds = Counter(event.type for event in replayed)
    assert all(kind.startswith("agent.") for kind in kinds)
    assert {"agent.message_created", "agent.tool_updated", "agent.text_completed"} <= set(kinds)
