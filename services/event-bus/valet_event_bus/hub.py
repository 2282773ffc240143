"""One reader of the whole log, and for every session that is watched the clients that watch it.

There is no tick: what is in the log is written at once. While a write to many clients takes its time further
events gather in the reader and go out joined in the next one, so the work per event falls as the load rises.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nats.aio.client import Client
from valet_protocol.codec import decode
from valet_protocol.errors import BadEvent
from valet_protocol.events.facts import ParticipantAdded, ParticipantRemoved, ShareLinkRevoked
from valet_service import logs
from valet_service.log_reader import Entry, LogReader

from valet_event_bus import limits, stream
from valet_event_bus.doubts import Doubt
from valet_event_bus.frames import Batch, Line, line, split

_log = logs.get(__name__)


_MEMBERSHIP = ("fact.participant_added", "fact.participant_removed", "fact.share_link_revoked")


class Watcher(Protocol):
    """A client's view of one session. Hashable by identity."""

    @property
    def user(self) -> str:
        """Whose it is."""
        ...

    def send(self, batch: Batch) -> None:
        """Take events, without waiting; who is too slow cuts itself off."""
        ...

    def revoked(self) -> None:
        """The user may no longer watch the session: say so, and leave the channel."""
        ...


class Membership(Protocol):
    """Who wants to know who takes part in a session. Called in the order of the log, before anything that follows."""

    def added(self, user: str, session_id: str) -> None: ...

    def removed(self, user: str, session_id: str) -> None: ...


class Channel:
    """A watched session: its live watchers and its last events."""

    __slots__ = ("_bytes", "_live", "floor", "holders", "recent", "session_id")

    def __init__(self, session_id: str, floor: int) -> None:
        self.session_id = session_id
        self.floor = floor
        """Every event of the session above this sequence that the hub has read is in `recent`."""
        self.recent: deque[Line] = deque()
        self.holders: dict[Watcher, None] = {}
        """Watchers that follow or are about to."""
        self._bytes = 0
        self._live: dict[Watcher, None] = {}

    def add(self, watcher: Watcher) -> None:
        """From here on the watcher gets every event of the session."""
        self._live[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self._live.pop(watcher, None)

    def publish(self, lines: Sequence[Line]) -> int:
        """Give events to all live watchers; returns how many there are."""
        watchers = tuple(self._live)
        if watchers:
            for part in split(lines, limits.FLUSH_BYTES):
                batch = Batch(self.session_id, part)
                for watcher in watchers:
                    watcher.send(batch)
        recent = self.recent
        recent.extend(lines)
        self._bytes += sum(len(one.payload) for one in lines)
        while len(recent) > limits.RECENT_EVENTS or self._bytes > limits.RECENT_BYTES:
            oldest = recent.popleft()
            self._bytes -= len(oldest.payload)
            self.floor = oldest.seq
        return len(watchers)

    def since(self, cursor: int) -> list[Line]:
        """What is known above a cursor that is not below `floor`."""
        return [one for one in self.recent if one.seq > cursor]


class Hub:
    """Reads the log from its present end on and passes it to the channels. Run `run()` as a task."""

    def __init__(self, nc: Client, position: int, membership: Membership) -> None:
        self._nc = nc
        self._membership = membership
        self._channels: dict[str, Channel] = {}
        self._waiting: dict[asyncio.Future[None], int] = {}
        self.overhear: Callable[[Sequence[Entry]], None] = lambda _: None
        """Given everything that was read, whether anybody watches or not; must not wait."""
        self.doubt: Callable[[Doubt], None] = lambda _: None
        """Told of every end of somebody's part, which may be the end of others below it; must not wait."""
        self.reading = asyncio.Event()
        """Set once the log is being read."""
        self.position = position
        """Sequence up to which the log has been read."""

    def join(self, session_id: str, watcher: Watcher) -> Channel:
        """The session's channel, kept until everybody who joined has left."""
        channel = self._channels.get(session_id)
        if channel is None:
            channel = self._channels[session_id] = Channel(session_id, self.position)
        channel.holders[watcher] = None
        return channel

    def leave(self, channel: Channel, watcher: Watcher) -> None:
        """Nothing more of that session for this watcher. One that has left already is fine."""
        channel.remove(watcher)
        if watcher in channel.holders:
            del channel.holders[watcher]
            if not channel.holders:
                del self._channels[channel.session_id]

    def watchers(self) -> Iterator[tuple[str, str]]:
        """Session and user of everybody who watches or is about to."""
        for channel in self._channels.values():
            for watcher in channel.holders:
                yield channel.session_id, watcher.user

    def cut(self, user: str, session_id: str) -> None:
        """A user may no longer watch a session."""
        channel = self._channels.get(session_id)
        for watcher in list(channel.holders) if channel else ():
            if watcher.user == user:
                watcher.revoked()

    async def reach(self, seq: int) -> None:
        """Wait, for a moment, until the hub has read up to a sequence of the log.

        The reader alone may never get there: the last events may have been purged before it came to them.
        """
        if seq <= self.position:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = seq
        try:
            await asyncio.wait_for(waiter, limits.REACH)
        except TimeoutError:
            following = await stream.next_seq(self._nc, self.position)
            if following is None or following > seq:
                self.position = max(self.position, seq)
            else:
                _log.warning("hub_is_behind", wanted=seq, position=self.position)
        finally:
            self._waiting.pop(waiter, None)

    async def run(self) -> None:
        """Until cancelled. A restart of the broker is the reader's business: it goes on where it was."""
        async with LogReader(self._nc, ["session.>"], start=self.position + 1) as reader:
            self.reading.set()
            while True:
                self.pass_on(await reader.batch(limits.READ_EVENTS))
                await asyncio.sleep(0)  # the loop writes, reads what came meanwhile, and serves new clients

    def pass_on(self, entries: Sequence[Entry]) -> None:
        """Sort entries by session and publish them. Nothing here waits, so a joining client sees all or nothing."""
        channels = self._channels
        touched: dict[str, list[Line]] = {}
        for entry in entries:
            tokens = entry.subject.split(".", 3)
            session_id = tokens[2] if len(tokens) > 2 else ""
            if session_id in channels:
                try:
                    one = line(entry.seq, entry.subject, entry.payload)
                except BadEvent as error:
                    _log.warning("not_an_event", seq=entry.seq, subject=entry.subject, error=str(error))
                    continue
                touched.setdefault(session_id, []).append(one)
            if tokens[-1] in _MEMBERSHIP:
                if session_id in touched:  # who is removed still gets to know of it, and nothing more
                    channels[session_id].publish(touched.pop(session_id))
                self._admit(session_id, entry)
        self.position = entries[-1].seq
        for session_id, lines in touched.items():
            if session_id in channels:
                channels[session_id].publish(lines)
        self.overhear(entries)
        for waiter, cursor in list(self._waiting.items()):
            if cursor <= self.position and not waiter.done():
                waiter.set_result(None)

    def _admit(self, session_id: str, entry: Entry) -> None:
        """Pass on who takes part from here on, and cut off who no longer does."""
        try:
            data = decode(entry.payload).data
        except BadEvent as error:
            _log.warning("not_an_event", seq=entry.seq, subject=entry.subject, error=str(error))
            return
        match data:
            case ParticipantAdded(user=user):
                self._membership.added(user, session_id)
            case ParticipantRemoved(user=user):
                self._membership.removed(user, session_id)
                self.cut(user, session_id)
                self.doubt(Doubt(session_id=session_id, user=user, seq=entry.seq))
            case ShareLinkRevoked():
                self.doubt(Doubt(session_id=session_id, user=None, seq=entry.seq))
            case _:
                return
