"""The event bus, wired: log → hub → clients that api hands over; log → notifications."""

import asyncio
import contextlib
import resource
import socket

from nats.aio.client import Client as Broker
from valet_protocol.requests import HandOver
from valet_service import broker, lifecycle, logs, tasks
from valet_service.owners import Owners
from valet_service.settings import Settings

from valet_event_bus import limits, stream
from valet_event_bus.access import Access
from valet_event_bus.addressees import Addressees
from valet_event_bus.attendance import Attendance
from valet_event_bus.client import Client, tune
from valet_event_bus.config import socket_path
from valet_event_bus.doubts import Doubts
from valet_event_bus.hand_over import Entrance
from valet_event_bus.hub import Hub
from valet_event_bus.note_store import NoteStore
from valet_event_bus.notifier import Notifier
from valet_event_bus.serve import NotificationRequests
from valet_event_bus.serve_notes import NoteRequests
from valet_event_bus.sse import SseClient
from valet_event_bus.store import Store
from valet_event_bus.ws import WsClient

_log = logs.get(__name__)


class Clients:
    """Every connected client."""

    def __init__(self, nc: Broker, hub: Hub, access: Access, attendance: Attendance, addressees: Addressees) -> None:
        self._nc = nc
        self._hub = hub
        self._access = access
        self._attendance = attendance
        self._addressees = addressees
        self._all: dict[Client, None] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    def take(self, message: HandOver, connection: socket.socket) -> None:
        """Begin to serve a connection that was handed over."""
        task = asyncio.create_task(self._start(message, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, message: HandOver, connection: socket.socket) -> None:
        try:
            tune(connection)
            client = self._client(message)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: client, connection)
            self._all[client] = None
            if isinstance(client, WsClient):
                self._addressees.add(client)
        except OSError as error:  # it went away on the way here
            _log.debug("connection_gone", error=str(error))
            connection.close()

    def _client(self, message: HandOver) -> Client:
        nc, hub, access, attendance = self._nc, self._hub, self._access, self._attendance
        if message.kind == "sse":
            session_id = message.session_id or ""
            return SseClient(nc, hub, access, attendance, message.user, session_id, message.after, self._closed)
        return WsClient(nc, hub, access, attendance, message.user, message.name, message.ws_key or "", self._closed)

    def _closed(self, client: Client) -> None:
        self._all.pop(client, None)
        self._addressees.remove(client)
        if not self._all:
            self._empty.set()

    async def keep_alive(self, kind: type[Client], every: float) -> None:
        """Until cancelled: let idle connections of a kind show that they live."""
        while True:
            await asyncio.sleep(every)
            for client in list(self._all):
                if isinstance(client, kind):
                    client.keep_alive()

    async def close(self) -> None:
        """End every connection; clients resume from their cursors elsewhere or later."""
        for client in list(self._all):
            client.bid_farewell()
        if self._all:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), limits.CLOSE_GRACE)
        for client in list(self._all):
            client.abort()


def allow_connections() -> None:
    """As many open files as we may have: the usual 1,024 would be the limit of clients."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def keep_notifications(url: str, log_end: int, store: Store, notifier: Notifier, hub: Hub) -> None:
    """Until cancelled. Waits for the database, for which nobody who follows a session waits."""
    await store.open(url, log_end)
    async with asyncio.TaskGroup() as group:
        group.create_task(notifier.run(lambda: hub.position))
        group.create_task(notifier.prune())


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    allow_connections()
    nc = await broker.connect_service(settings, "event-bus")
    await broker.ensure_stream(nc)
    access = Access(nc)
    log_end = await stream.last_seq(nc)
    hub = Hub(nc, log_end, access)
    owners = Owners(nc, limits.OWNERS_KEPT)
    doubts = Doubts(nc, hub, access, owners)
    hub.doubt = doubts.raise_doubt
    attendance = Attendance(nc)
    addressees = Addressees()
    clients = Clients(nc, hub, access, attendance, addressees)
    store = Store()
    parts = [
        asyncio.create_task(hub.run()),
        asyncio.create_task(doubts.run()),
        asyncio.create_task(attendance.run()),
        asyncio.create_task(clients.keep_alive(SseClient, limits.KEEP_ALIVE)),
        asyncio.create_task(clients.keep_alive(WsClient, limits.PING)),
    ]
    if settings.database_url:
        notifier = Notifier(nc, store, attendance.attentive)
        hub.overhear = notifier.feed.offer
        parts.append(asyncio.create_task(keep_notifications(settings.database_url, log_end, store, notifier, hub)))
    else:
        _log.warning("no_notifications", reason="VALET_DATABASE_URL is not set: sessions can be followed, no more")
    await addressees.listen(nc)
    await NotificationRequests(nc, store).start()
    await NoteRequests(nc, NoteStore(store), owners).start()
    stopped = asyncio.create_task(stop.wait())
    reading = asyncio.create_task(hub.reading.wait())
    done, _ = await asyncio.wait([stopped, reading, *parts], return_when=asyncio.FIRST_COMPLETED)
    async with Entrance(socket_path(settings), clients.take):
        if reading in done:
            lifecycle.ready()
            _log.info("ready", socket=str(socket_path(settings)))
        done, _ = await asyncio.wait([stopped, *parts], return_when=asyncio.FIRST_COMPLETED)
    await clients.close()
    await tasks.end(*(task for task in (stopped, reading, *parts) if not task.done()))
    await attendance.close()
    store.close()
    await broker.close(nc)
    for task in parts:
        if task in done:
            task.result()  # a part that ended by itself has failed: say so, and be started again
