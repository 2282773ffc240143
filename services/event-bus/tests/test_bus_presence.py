"""Claims about who is here, without any I/O: time is passed in."""

from valet_event_bus import limits, presence
from valet_event_bus.presence import Person, Room, Settled, hear, join, leave, say, settle

MS = 1_700_000_000_000


def seen(room: Room, now: float) -> dict[str, str]:
    """User → state, as clients are told."""
    return {one.user: one.state for one in settle(room, now, MS).room.shown}


def told(settled: Settled) -> dict[str, str] | None:
    """User → state, as other replicas are told; none when they are told nothing."""
    return None if settled.announce is None else {one.user: one.state for one in settled.announce}


def person(user: str, state: presence.Attention = "active", name: str = "") -> Person:
    return Person(user=user, name=name, state=state, since_ms=MS)


def test_who_joins_and_leaves_is_told_to_clients_and_replicas() -> None:
    first = settle(join(Room(), 1, "anna", "Anna", "active", 0.0, MS), 0.0, MS)
    assert first.show
    assert [(one.user, one.name, one.since) for one in first.room.shown] == [
        ("anna", "Anna", "2023-11-14T22:13:20.000Z")
    ]
    assert told(first) == {"anna": "active"}
    again = settle(first.room, 1.0, MS)
    assert not again.show
    assert told(again) is None
    gone = settle(leave(again.room, 1), 2.0, MS)
    assert (gone.show, told(gone), gone.room.empty) == (True, {}, True)


def test_two_tabs_of_one_user_are_one_person_in_the_stronger_state() -> None:
    room = join(join(Room(), 1, "anna", "Anna", "active", 0.0, MS), 2, "anna", "Anna", "active", 0.0, MS)
    room = say(room, 2, "idle", 0.0, MS)
    assert seen(room, 0.0) == {"anna": "active"}
    room = say(room, 2, "typing", 0.0, MS)
    assert seen(room, 0.0) == {"anna": "typing"}
    assert seen(leave(room, 1), 0.0) == {"anna": "typing"}
    assert seen(leave(leave(room, 1), 2), 0.0) == {}


def test_one_user_at_two_replicas_is_one_person() -> None:
    room = hear(join(Room(), 1, "anna", "", "idle", 0.0, MS), "other", [person("anna", name="Anna")], 0.0)
    (one,) = settle(room, 0.0, MS).room.shown
    assert (one.user, one.name, one.state) == ("anna", "Anna", "active")


def test_typing_falls_back_to_active_unless_it_is_renewed() -> None:
    room = say(join(Room(), 1, "anna", "", "active", 0.0, MS), 1, "typing", 0.0, MS)
    room = settle(room, 0.0, MS).room
    assert presence.due(room) == limits.TYPING
    assert seen(room, limits.TYPING - 0.1) == {"anna": "typing"}
    assert seen(room, limits.TYPING) == {"anna": "active"}
    renewed = say(room, 1, "typing", 4.0, MS)
    assert not settle(renewed, 4.0, MS).show
    assert seen(renewed, limits.TYPING + 3.9) == {"anna": "typing"}


def test_a_replica_that_died_takes_its_people_with_it_after_a_while() -> None:
    room = settle(hear(Room(), "other", [person("ben")], 0.0), 0.0, MS).room
    assert presence.due(room) == limits.REPLICA_SILENT
    heard_again = hear(room, "other", [person("ben")], 10.0)
    assert seen(heard_again, limits.REPLICA_SILENT + 9.9) == {"ben": "active"}
    after = settle(room, limits.REPLICA_SILENT, MS)
    assert (after.show, after.room.empty) == (True, True)


def test_people_are_announced_again_every_few_seconds_and_to_a_newcomer_at_once() -> None:
    room = settle(join(Room(), 1, "anna", "", "active", 0.0, MS), 0.0, MS).room
    assert told(settle(room, limits.ANNOUNCE - 0.1, MS)) is None
    assert presence.due(room) == limits.ANNOUNCE
    assert told(settle(room, limits.ANNOUNCE, MS)) == {"anna": "active"}
    met = settle(hear(room, "other", [person("ben")], 1.0), 1.0, MS)
    assert told(met) == {"anna": "active"}
    assert told(settle(hear(met.room, "other", [person("ben")], 2.0), 2.0, MS)) is None


def test_a_replica_without_people_of_its_own_announces_nothing() -> None:
    room = settle(hear(Room(), "other", [person("ben")], 0.0), 0.0, MS)
    assert room.announce is None
    assert told(settle(room.room, limits.ANNOUNCE + 1, MS)) is None


def test_who_follows_over_sse_is_not_shown_but_counts_as_looking() -> None:
    room = join(Room(), 1, "anna", "", "following", 0.0, MS)
    settled = settle(room, 0.0, MS)
    assert (settled.show, settled.room.shown) == (False, ())
    assert told(settled) == {"anna": "following"}
    assert presence.attentive(room, 0.0) == {"anna"}
    assert seen(join(room, 2, "anna", "", "idle", 0.0, MS), 0.0) == {"anna": "idle"}


def test_who_is_idle_in_every_tab_does_not_look() -> None:
    room = say(join(Room(), 1, "anna", "", "active", 0.0, MS), 1, "idle", 0.0, MS)
    room = hear(room, "other", [person("ben"), person("anna", "idle")], 0.0)
    assert presence.attentive(room, 0.0) == {"ben"}
    assert presence.attentive(room, limits.REPLICA_SILENT) == frozenset()


def test_what_a_connection_says_that_never_joined_is_nothing() -> None:
    assert say(Room(), 1, "typing", 0.0, MS) == Room()
    assert leave(Room(), 1) == Room()


def test_forged_replicas_and_people_are_bounded() -> None:
    room = Room()
    for number in range(500):
        room = hear(room, f"r{number}", [person(f"u{number}-{n}") for n in range(150)], 0.0)
    assert len(room.others) == limits.PRESENCE_REPLICAS
    assert len(settle(room, 0.0, MS).room.shown) == limits.PRESENCE_PEOPLE
