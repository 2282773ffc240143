"""Reads the log for notifications: each event once, whatever is killed in between.

What the events mean and how far the log was read are stored in one transaction. It starts with what was written while
nobody read (a reader of its own, for that stretch), and goes on with what the hub reads anyway.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import decode
from valet_protocol.errors import BadEvent
from valet_protocol.events.envelope import Event
from valet_protocol.ids import is_ulid
from valet_service import database, logs
from valet_service.log_reader import Entry, LogReader

from valet_event_bus import limits, notify
from valet_event_bus.feed import Feed, matters
from valet_event_bus.notify import Notification
from valet_event_bus.store import Read, Store, view

_log = logs.get(__name__)

_FILTERS = [
    subjects.every_of("fact"),
    *(subjects.every("agent", kind.removeprefix("agent.")) for kind in sorted(notify.AGENT)),
]


class Notifier:
    """Run `run()` as a task. `attentive` names the users who look at a session at this moment."""

    def __init__(self, nc: Client, store: Store, attentive: Callable[[str], frozenset[str]]) -> None:
        self._nc = nc
        self._store = store
        self._attentive = attentive
        self.feed = Feed()

    async def run(self, position: Callable[[], int]) -> None:
        """Until cancelled. `position` is up to where the hub has read, and `feed` been offered, the log."""
        while True:
            self.feed.restart()
            await self._catch_up(position())
            while self.feed.complete:
                entries, upto = await self.feed.take(limits.NOTIFY_EVENTS)
                if self.feed.complete:
                    await self._keep(entries, upto)
            _log.warning("notifications_read_the_log_again")

    async def prune(self) -> None:
        """Until cancelled: remove what was read long ago."""
        while True:
            await database.persist(self._store.prune)
            await asyncio.sleep(limits.PRUNE_EVERY)

    async def _catch_up(self, end: int) -> None:
        """Deal with what was written since somebody last read, up to `end`."""
        position = await database.persist(self._store.position)
        if position >= end:
            return
        async with LogReader(self._nc, _FILTERS, start=position + 1) as reader:
            pending = reader.pending_at_start
            while pending:
                entries = await reader.batch(limits.NOTIFY_EVENTS)
                last = entries[-1]
                await self._keep(entries, last.seq)
                pending = last.pending if last.seq < end else 0
        await self._keep([], end)

    async def _keep(self, entries: Sequence[Entry], upto: int) -> None:
        """Store what events mean, and tell those who are connected. Does not give up."""
        events = [event for event in map(_event, entries) if event is not None]
        while True:
            try:
                news = await database.persist(lambda: self._store.keep(events, upto, self._decide))
                break
            except Exception as error:  # noqa: BLE001 - following goes on without notifications, and they are not lost
                _log.exception("notifications_not_stored", upto=upto, error=str(error))
                await asyncio.sleep(limits.NOTIFY_RETRY)
        for one in news:
            if isinstance(one, Notification):
                await tell_notification(self._nc, one)
            else:
                await tell_read(self._nc, one)

    def _decide(self, events: Sequence[Event], known: notify.Known, silent_until: int) -> notify.Digest:
        return notify.digest(events, known, self._attentive, silent_until)


def _event(entry: Entry) -> Event | None:
    """A stored message, believed as far as its subject goes; none for what does not matter or is not what it says."""
    if not matters(entry.subject):
        return None
    tokens = entry.subject.split(".", 3)
    try:
        event = decode(entry.payload, entry.seq)
    except BadEvent as error:
        _log.warning("not_an_event", seq=entry.seq, subject=entry.subject, error=str(error))
        return None
    if (event.type, event.session_id) != (tokens[3], tokens[2]):
        _log.warning("not_an_event", seq=entry.seq, subject=entry.subject, error=f"calls itself {event.type}")
        return None
    return event


async def tell_notification(nc: Client, one: Notification) -> None:
    """Let its user's connections know of a new one."""
    await tell(nc, one.user, {"type": "notification", "notification": view(one)})


async def tell_read(nc: Client, read: Read) -> None:
    """Let a user's connections know that some notifications are read."""
    await tell(nc, read.user, {"type": "notifications_read", "ids": read.ids})


async def tell(nc: Client, user: str, message: dict[str, object]) -> None:
    """Give a message to all connections of a user, at whichever replica. Who has none reads it from the list."""
    if not is_ulid(user):
        return  # not a token of a subject
    try:
        await nc.publish(subjects.live("user", f"{user}.notification"), msgspec.json.encode(message))
    except nats.errors.Error as error:
        _log.info("notification_not_told", user=user, error=str(error))
