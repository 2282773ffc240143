"""What the controller says in the log. Every event's id follows from what it says, so saying it twice is harmless."""

import asyncio
from collections.abc import Callable

from valet_protocol import codec, ids
from valet_protocol.catalogue import type_of
from valet_protocol.events.envelope import Data
from valet_service.outbox import Outbox

_SOURCE = "/sandbox-controller"


class Announcer:
    """Writes the sandbox events of all sessions."""

    def __init__(self, outbox: Outbox, now_ms: Callable[[], int]) -> None:
        self._outbox = outbox
        self._now_ms = now_ms

    async def say(self, session_id: str, epoch: int, data: Data) -> None:
        """Store an event; returns when it is stored, however long the broker is away."""
        await self.queue(session_id, epoch, data)

    def queue(self, session_id: str, epoch: int, data: Data) -> asyncio.Future[int]:
        """Store an event in the background, before all that are said later."""
        event = codec.new_event(
            data,
            id=ids.derived_id(session_id, type_of(data).type, epoch),
            session_id=session_id,
            now_ms=self._now_ms(),
            epoch=epoch,
        )
        return self._outbox.put(codec.encode(event, source=_SOURCE))

    async def flush(self) -> None:
        """Return when all is stored."""
        await self._outbox.flush()
