"""Who is here: the people at one session, as every replica of the event bus comes to see them. Pure.

A replica knows its own connections. It says who they are whenever that changes and every few seconds; what others said
is believed until they have been silent for too long. So all replicas agree, and a replica that died is forgotten.

Inputs (`join`, `leave`, `say`, `hear`) only change the room; what is to be said because of them comes from `settle`,
which may be called as seldom as one likes: many changes then make one message. `now` is monotonic seconds.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Literal

import msgspec
from valet_protocol.codec import rfc3339

from valet_event_bus import limits

State = Literal["typing", "active", "idle"]
"""What a person does, the strongest first: of two tabs the stronger counts."""

Attention = Literal["typing", "active", "idle", "following"]
"""The same of a connection. `following` is one over SSE: it watches, but cannot say what its person does, and is not
shown to others."""

_STRENGTH: Mapping[str, int] = {"following": 0, "idle": 1, "active": 2, "typing": 3}


class Person(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One user, however many connections they have: as replicas tell each other."""

    user: str
    name: str = ""
    state: Attention
    since_ms: int
    """When they came to that state, milliseconds since 1970."""


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One user as clients see them."""

    user: str
    name: str = ""
    state: State
    since: str
    """When they came to that state, RFC 3339."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One connection of this replica that watches the session."""

    person: Person
    typing_until: float = 0.0
    """While typing: when that is over unless it is said again."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What another replica last said."""

    people: tuple[Person, ...]
    until: float
    """When it is forgotten unless it is said again."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    own: Mapping[Hashable, Connection] = {}
    others: Mapping[str, Heard] = {}
    """By replica."""
    announced: tuple[Person, ...] = ()
    """Own people as the other replicas last heard them from us."""
    announce_at: float = 0.0
    """When they are to hear it again, changed or not."""
    newcomer: bool = False
    """Whether a replica spoke that we did not know: it does not know our people either."""
    shown: tuple[Shown, ...] = ()
    """Everybody, as clients last heard it."""

    @property
    def empty(self) -> bool:
        """Nobody is here, and everybody has been told so."""
        return not (self.own or self.others or self.announced or self.shown)


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a room, and what is to be said."""

    room: Room
    announce: tuple[Person, ...] | None = None
    """For the other replicas: our people; none when there is nothing to say."""
    show: bool = False
    """Whether clients are to hear again who is here: `room.shown`."""


def join(room: Room, key: Hashable, user: str, name: str, state: Attention, now: float, now_ms: int) -> Room:
    """A connection began to watch the session."""
    person = Person(user=user, name=name, state=state, since_ms=now_ms)
    connection = Connection(person=person, typing_until=now + limits.TYPING if state == "typing" else 0.0)
    return msgspec.structs.replace(room, own={**room.own, key: connection})


def leave(room: Room, key: Hashable) -> Room:
    """A connection no longer watches the session. One that never did is fine."""
    return msgspec.structs.replace(room, own={other: value for other, value in room.own.items() if other != key})


def say(room: Room, key: Hashable, state: State, now: float, now_ms: int) -> Room:
    """A connection says what its person does. Typing said again lasts longer."""
    connection = room.own.get(key)
    if connection is None:
        return room
    person = connection.person
    if person.state != state:
        person = msgspec.structs.replace(person, state=state, since_ms=now_ms)
    until = now + limits.TYPING if state == "typing" else 0.0
    return msgspec.structs.replace(room, own={**room.own, key: Connection(person=person, typing_until=until)})


def hear(room: Room, replica: str, people: Iterable[Person], now: float) -> Room:
    """Another replica said who is with it; nobody means that it has nothing more to say."""
    others = {name: heard for name, heard in room.others.items() if name != replica}
    known = len(others) < len(room.others)
    said = tuple(people)[: limits.PRESENCE_PEOPLE]
    if said and len(others) < limits.PRESENCE_REPLICAS:
        others[replica] = Heard(people=said, until=now + limits.REPLICA_SILENT)
    newcomer = room.newcomer or (bool(said) and not known)
    return msgspec.structs.replace(room, others=others, newcomer=newcomer)


def settle(room: Room, now: float, now_ms: int) -> Settled:
    """Let time pass, and find out what is to be said."""
    own = {key: _rested(connection, now, now_ms) for key, connection in room.own.items()}
    others = {name: heard for name, heard in room.others.items() if heard.until > now}
    mine = _people(connection.person for connection in own.values())
    everybody = _people([*mine, *(person for heard in others.values() for person in heard.people)])
    announce = mine != room.announced or (bool(mine) and (room.newcomer or now >= room.announce_at))
    shown = _visible(everybody)
    return Settled(
        room=Room(
            own=own,
            others=others,
            announced=mine,
            announce_at=now + limits.ANNOUNCE if announce else room.announce_at,
            shown=shown,
        ),
        announce=mine if announce else None,
        show=shown != room.shown,
    )


def due(room: Room) -> float:
    """When `settle` has something to do although nothing came in; infinity when never."""
    times = [connection.typing_until for connection in room.own.values() if connection.person.state == "typing"]
    times += [heard.until for heard in room.others.values()]
    if room.announced:
        times.append(room.announce_at)
    return min(times, default=float("inf"))


def attentive(room: Room, now: float) -> frozenset[str]:
    """The users who look at the session at this moment: not those whose every tab says idle."""
    people = [connection.person for connection in room.own.values()]
    people += [person for heard in room.others.values() if heard.until > now for person in heard.people]
    return frozenset(person.user for person in people if person.state != "idle")


def _rested(connection: Connection, now: float, now_ms: int) -> Connection:
    if connection.person.state != "typing" or connection.typing_until > now:
        return connection
    return Connection(person=msgspec.structs.replace(connection.person, state="active", since_ms=now_ms))


def _people(connections: Iterable[Person]) -> tuple[Person, ...]:
    """Each user once, by user: the strongest state, and the earliest time of it."""
    best: dict[str, Person] = {}
    for one in connections:
        other = best.get(one.user, one)
        stronger, weaker = (one, other) if _rank(one) > _rank(other) else (other, one)
        named = stronger.name or not weaker.name
        best[one.user] = stronger if named else msgspec.structs.replace(stronger, name=weaker.name)
    return tuple(best[user] for user in sorted(best))


def _visible(people: Iterable[Person]) -> tuple[Shown, ...]:
    """People as clients see them."""
    return tuple(
        Shown(user=one.user, name=one.name, state=one.state, since=rfc3339(one.since_ms))
        for one in people
        if one.state != "following"
    )[: limits.PRESENCE_PEOPLE]


def _rank(person: Person) -> tuple[int, int]:
    return _STRENGTH[person.state], -person.since_ms
