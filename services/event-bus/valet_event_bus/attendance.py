"""Presence of every watched session: told to the other replicas over core NATS, and to the clients that watch.

Nothing here is stored and nothing waits for it. Changes are gathered and said a few times a second at most, the more
seldom the more clients a session has, so that people who type never hold events up.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects
from valet_protocol.ids import is_ulid, new_id
from valet_service import logs

from valet_event_bus import frames, limits, presence
from valet_event_bus.presence import Attention, Person, Room, Shown, State

_log = logs.get(__name__)


class Watching(Protocol):
    """A connection's view of one session, as far as presence goes. Hashable by identity."""

    def present(self, frame: bytes) -> bool:
        """Take the list of people. False from a client that has not taken what it got before: it is asked again."""
        ...


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of one session."""

    replica: str
    people: tuple[Person, ...]


_decoder = msgspec.json.Decoder(Announcement)


class Attendance:
    """The rooms of all sessions that are watched here or elsewhere. Run `run()` as a task."""

    def __init__(self, nc: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._nc = nc
        self._clock = clock
        self._replica = new_id()
        self._rooms: dict[str, Room] = {}
        self._due: dict[str, float] = {}
        """When a room that nothing happens in has something to say."""
        self._changed: dict[str, None] = {}
        self._not_before: dict[str, float] = {}
        """When a busy room may speak to its clients again."""
        self._watching: dict[str, dict[Watching, None]] = {}
        """Clients that are shown who is here."""
        self._behind: dict[str, dict[Watching, None]] = {}
        """Those of them that have not got the present list."""
        self._wake = asyncio.Event()

    def join(self, session_id: str, watching: Watching, user: str, name: str, state: Attention) -> None:
        """A connection watches a session. One that is `following` is counted and not shown anything."""
        room = self._rooms.get(session_id) or Room()
        room = presence.join(room, watching, user, name, state, self._clock(), _now_ms())
        if state != "following":
            self._watching.setdefault(session_id, {})[watching] = None
            self._behind.setdefault(session_id, {})[watching] = None
        self._keep(session_id, room)

    def leave(self, session_id: str, watching: Watching) -> None:
        """It no longer does, or never did."""
        room = self._rooms.get(session_id)
        if room is None or watching not in room.own:
            return
        for clients in (self._watching, self._behind):
            if session_id in clients:
                clients[session_id].pop(watching, None)
                if not clients[session_id]:
                    del clients[session_id]
        self._keep(session_id, presence.leave(room, watching))

    def say(self, session_id: str, watching: Watching, state: State) -> None:
        """A connection says what its person does."""
        room = self._rooms.get(session_id)
        if room is not None:
            self._keep(session_id, presence.say(room, watching, state, self._clock(), _now_ms()))

    def attentive(self, session_id: str) -> frozenset[str]:
        """The users who look at a session at this moment, at whichever replica."""
        room = self._rooms.get(session_id)
        return frozenset() if room is None else presence.attentive(room, self._clock())

    async def run(self) -> None:
        """Until cancelled: hear the others, and say what is to be said."""
        subscription = await self._nc.subscribe(
            subjects.live("*", "presence"), cb=self._hear, pending_msgs_limit=limits.PRESENCE_PENDING
        )
        try:
            while True:
                if not self._rooms:
                    self._wake.clear()
                    await self._wake.wait()
                await self._speak()
                await asyncio.sleep(limits.PRESENCE_FLUSH)
        finally:
            if not self._nc.is_closed:
                await subscription.unsubscribe()

    async def close(self) -> None:
        """This replica stops: its people are gone until they are with another."""
        for session_id, room in list(self._rooms.items()):
            if room.announced:
                await self._announce(session_id, ())
        with contextlib.suppress(nats.errors.Error, TimeoutError):  # the others find out by themselves, later
            await asyncio.wait_for(self._nc.flush(), limits.PRESENCE_GOODBYE)

    def _keep(self, session_id: str, room: Room) -> None:
        self._rooms[session_id] = room
        self._changed[session_id] = None
        self._wake.set()

    async def _hear(self, message: Msg) -> None:
        session_id = message.subject.split(".")[1]
        try:
            said = _decoder.decode(message.data)
        except msgspec.MsgspecError as error:
            _log.warning("not_presence", subject=message.subject, error=str(error))
            return
        if said.replica != self._replica and is_ulid(session_id):
            room = self._rooms.get(session_id) or Room()
            self._keep(session_id, presence.hear(room, said.replica, said.people, self._clock()))

    async def _speak(self) -> None:
        now = self._clock()
        overdue = [session_id for session_id, when in self._due.items() if when <= now]
        ready = dict.fromkeys([*self._changed, *self._behind, *overdue])
        for count, session_id in enumerate(ready):
            if self._not_before.get(session_id, 0.0) <= now and session_id in self._rooms:
                await self._settle(session_id, now)
                if count % limits.PRESENCE_AT_ONCE == 0:
                    await asyncio.sleep(0)  # events go before

    async def _settle(self, session_id: str, now: float) -> None:
        self._changed.pop(session_id, None)
        settled = presence.settle(self._rooms[session_id], now, _now_ms())
        self._rooms[session_id] = settled.room
        self._due[session_id] = presence.due(settled.room)
        watching = self._watching.get(session_id, {})
        self._not_before[session_id] = now + len(watching) / limits.PRESENCE_WRITES
        if settled.show and watching:
            self._behind[session_id] = dict(watching)
        if settled.announce is not None:
            await self._announce(session_id, settled.announce)
        await self._show(session_id, settled.room.shown)
        if self._rooms[session_id].empty and session_id not in self._changed:
            for known in (self._rooms, self._due, self._not_before):
                del known[session_id]

    async def _show(self, session_id: str, people: tuple[Shown, ...]) -> None:
        behind = self._behind.pop(session_id, None)
        if not behind:
            return
        frame = frames.presence_ws(session_id, people)
        late: dict[Watching, None] = {}
        for count, watching in enumerate(behind, 1):
            if watching in self._watching.get(session_id, {}) and not watching.present(frame):
                late[watching] = None
            if count % limits.PRESENCE_AT_ONCE == 0:
                await asyncio.sleep(0)
        if late:
            self._behind.setdefault(session_id, {}).update(late)

    async def _announce(self, session_id: str, people: tuple[Person, ...]) -> None:
        said = msgspec.json.encode(Announcement(replica=self._replica, people=people))
        try:
            await self._nc.publish(subjects.live(session_id, "presence"), said)
        except nats.errors.Error as error:
            _log.debug("presence_not_said", error=str(error))  # it is said again in a few seconds


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
