"""What the runner says, into the log: items to events, paced, through the outbox."""

import asyncio
from collections.abc import Callable, Iterable

from valet_protocol import codec
from valet_protocol.events.envelope import Data, Event
from valet_service import logs
from valet_service.errors import EventTooLarge
from valet_service.outbox import Outbox

from valet_runner.bridge_state import Chunk, Item
from valet_runner.pacing import Pacer

_log = logs.get(__name__)


class Publisher:
    """The only way from the runner into the log. Order is kept; nothing is lost once `say` has returned and the
    outbox is flushed."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        session_id: str,
        epoch: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._outbox = outbox
        self._session_id = session_id
        self._epoch = epoch
        self._now_ms = now_ms
        self._new_id = new_id
        self._pacer = Pacer()
        self._timer: asyncio.TimerHandle | None = None
        self.turn: str | None = None
        """The turn that events belong to from now on."""

    def say(self, items: Iterable[Item], *, id: str | None = None) -> asyncio.Future[int] | None:
        """Put items on their way. Gives the future sequence of the last event that went out, if one did.

        With `id` there is one item: said again with the same id, by another runner too, it is in the log once.
        """
        loop = asyncio.get_running_loop()
        last: asyncio.Future[int] | None = None
        for item in items:
            for out in self._pacer.offer(item, now=loop.time(), backlog=self._outbox.backlog):
                last = self._put(out, id if out is item else None) or last
        self._arm(loop)
        return last

    async def room(self) -> None:
        """Wait until the outbox takes more."""
        await self._outbox.room()

    async def flush(self) -> None:
        """Send what is held and wait until everything is stored."""
        self._release(everything=True)
        await self._outbox.flush()

    def _put(self, item: Item, id: str | None = None) -> asyncio.Future[int] | None:
        event = self._event(item, id or self._new_id())
        try:
            stored = self._outbox.put(codec.encode(event, source=f"/sandboxes/{self._session_id}"))
        except EventTooLarge as error:
            _log.error("event_dropped", type=event.type, error=str(error))
            return None
        stored.add_done_callback(self._stored)
        return stored

    def _event(self, item: Item, id: str) -> Event:
        if isinstance(item, Chunk):
            return Event(
                id=id,
                type=f"delta.{item.kind}",
                session_id=self._session_id,
                time_ms=self._now_ms(),
                turn=self.turn,
                epoch=self._epoch,
                data=item.delta,
            )
        data: Data = item
        return codec.new_event(
            data,
            id=id,
            session_id=self._session_id,
            now_ms=self._now_ms(),
            turn=self.turn,
            epoch=self._epoch,
        )

    def _stored(self, stored: asyncio.Future[int]) -> None:
        if not stored.cancelled() and stored.exception() is None and self._pacer.holds_chunk:
            self._release()

    def _release(self, *, everything: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        backlog = 0 if everything else self._outbox.backlog
        for out in self._pacer.release(now=float("inf") if everything else loop.time(), backlog=backlog):
            self._put(out)
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._pacer.due
        if self._timer is None and due is not None:
            self._timer = loop.call_at(due, self._release)
