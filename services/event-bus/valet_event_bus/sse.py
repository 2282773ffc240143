"""One session as Server-Sent Events over a connection that api has already authorised."""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client as Broker
from valet_protocol.errors import Refused
from valet_service import logs

from valet_event_bus import frames
from valet_event_bus.access import Access
from valet_event_bus.attendance import Attendance
from valet_event_bus.client import Client
from valet_event_bus.errors import Gone
from valet_event_bus.follow import follow
from valet_event_bus.frames import Batch
from valet_event_bus.hub import Channel, Hub

_log = logs.get(__name__)

HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-store\r\n"
    b"x-accel-buffering: no\r\n"  # proxies that buffer would hold events back
    b"connection: close\r\n"
    b"\r\n"
)


class SseClient(Client):
    """Writes the response's head, history, the mark and then live events."""

    def __init__(
        self,
        nc: Broker,
        hub: Hub,
        access: Access,
        attendance: Attendance,
        user: str,
        session_id: str,
        after: int,
        closed: Callable[[Client], None],
    ) -> None:
        super().__init__(user, closed)
        self._nc = nc
        self._hub = hub
        self._access = access
        self._attendance = attendance
        self._after = after
        self._session_id = session_id
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.write(HEAD)
        self._channel = self._hub.join(self._session_id, self)
        self._task = asyncio.create_task(self._follow(self._channel))

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        return False  # an SSE client that closes its side is gone

    def send(self, batch: Batch) -> None:
        self.write(batch.sse)

    def synced(self, seq: int) -> None:
        self.write(frames.synced_sse(seq))
        self._attendance.join(self._session_id, self, self.user, "", "following")

    def present(self, frame: bytes) -> bool:
        return True  # never shown anything: a frame without an id would be news to clients

    def revoked(self) -> None:
        _log.info("access_revoked", session=self._session_id, user=self.user)
        self._leave()
        self.close()

    def keep_alive(self) -> None:
        self.write(frames.KEEP_ALIVE)

    def bid_farewell(self) -> None:
        self.close()

    async def _follow(self, channel: Channel) -> None:
        try:
            await self._access.check_again(self.user, self._session_id)
            await follow(self._nc, self._hub, channel, self, self._after)
        except Gone:
            return
        except Refused as refusal:
            # the head is sent, so it cannot be a status; the client comes back and api tells it why
            _log.info("stream_refused", session=self._session_id, reason=str(refusal))
            self.close()

    def _leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None:
            self._hub.leave(self._channel, self)
        self._attendance.leave(self._session_id, self)
