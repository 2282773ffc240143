"""Bringing one watcher from its cursor to the present and on: nothing lost, nothing doubled."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import BadEvent, BadRequest, Unavailable
from valet_protocol.requests import ArchivePage, ReadArchive
from valet_service import logs, rpc

from valet_event_bus import limits, stream
from valet_event_bus.frames import Batch, Line, archived_line
from valet_event_bus.hub import Channel, Hub, Watcher

_log = logs.get(__name__)


class Follower(Watcher, Protocol):
    """A watcher that history can be paced for."""

    async def drained(self) -> None:
        """Wait until the client has taken most of what was sent. Raises `Gone`."""
        ...

    def check(self) -> None:
        """Raises `Gone` when nobody wants this any more. A cancellation alone can be lost in `asyncio.wait_for`."""
        ...

    def synced(self, seq: int) -> None:
        """History ends here; what follows is live."""
        ...


async def follow(nc: Client, hub: Hub, channel: Channel, watcher: Follower, after: int) -> None:
    """Send everything above `after`, then the mark, and make the watcher live. The caller holds the channel.

    History is read up to where the hub is, and again if the hub has meanwhile moved on further than the channel
    remembers. Between the last look at the channel and becoming live nothing waits, so no event can slip through.
    Whatever was stored before this call comes before the mark.

    Raises `BadRequest` (`bad_cursor`) for a cursor beyond the end of the log, `Gone` when the client went away.
    """
    first, last = await stream.ends(nc)
    if after > last:
        raise BadRequest(
            "bad_cursor", f"{after} is beyond the end of the log, which is {last}; use a sequence you were given."
        )
    await hub.reach(last)
    if after > hub.position:
        raise Unavailable("unavailable", "The log cannot be read at the moment; try again.")
    cursor = after
    while cursor < channel.floor:
        mark = hub.position
        async for lines in _stored(nc, channel.session_id, cursor, mark, first):
            if lines:
                watcher.send(Batch(channel.session_id, lines))
            await watcher.drained()
        cursor = mark
    watcher.check()
    rest = channel.since(cursor)
    if rest:
        watcher.send(Batch(channel.session_id, rest))
    watcher.synced(hub.position)
    channel.add(watcher)


async def _stored(nc: Client, session_id: str, after: int, mark: int, first: int) -> AsyncIterator[Sequence[Line]]:
    """The session's events in (after, mark]; those below `first`, where the stream begins, from the archive."""
    cursor = after
    if cursor + 1 < first:
        async for lines in _archived(nc, session_id, cursor, min(first, mark + 1)):
            yield lines
        cursor = min(first - 1, mark)
    while cursor < mark:
        page = await stream.page(nc, session_id, cursor, mark)
        yield page.lines
        if page.last:
            return
        cursor = page.cursor


async def _archived(nc: Client, session_id: str, after: int, before: int) -> AsyncIterator[Sequence[Line]]:
    """Pages of the ledger's archive. Waits while the ledger is away."""
    cursor = after
    while True:
        request = ReadArchive(session_id=session_id, after=cursor, before=before, limit=limits.ARCHIVE_EVENTS)
        try:
            page = await rpc.call(nc, subjects.ledger_command(session_id, request.method), request, ArchivePage)
        except Unavailable as error:
            _log.warning("archive_unavailable", session=session_id, reason=str(error))
            continue
        lines: list[Line] = []
        for item in page.items:
            try:
                lines.append(archived_line(item.seq, bytes(item.event)))
            except BadEvent as error:
                _log.warning("not_an_event", seq=item.seq, error=str(error))
        yield lines
        if page.complete or not page.items:
            return
        cursor = page.items[-1].seq
