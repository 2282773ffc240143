"""Giving an accepted connection to the event bus, which writes the response and owns the socket from then on."""

import asyncio
import contextlib
import socket
from pathlib import Path

import msgspec
from valet_protocol.requests import HandOver
from valet_service import logs

from valet_api import limits
from valet_api.connection import Connection
from valet_api.errors import NoEventBus

_log = logs.get(__name__)


class Door:
    """The way to the event bus: one unix socket connection, made again when it breaks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._lock = asyncio.Lock()

    async def hand_over(self, connection: Connection, message: HandOver) -> None:
        """Give the connection away. Raises `NoEventBus` when nobody takes it in time; it is then still ours."""
        payload = msgspec.json.encode(message)
        frame = len(payload).to_bytes(4, "big") + payload
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.HAND_OVER_WAIT
        while not connection.gone:
            async with self._lock:
                given = await self._attempt(connection, frame)
            if given:
                connection.let_go()
                return
            if loop.time() > until:
                raise NoEventBus("the event bus takes no connections")
            await asyncio.sleep(limits.HAND_OVER_RETRY)

    async def reachable(self) -> bool:
        """Whether somebody listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self._path))
            except OSError:
                return False
            return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _attempt(self, connection: Connection, frame: bytes) -> bool:
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.setblocking(False)
                self._socket.connect(str(self._path))
            # reading stops first: what the client sends next is for the event bus
            sent = socket.send_fds(self._socket, [frame], [connection.descriptor()])
        except BlockingIOError:
            connection.keep()
            return False
        except OSError as error:
            _log.debug("event_bus_away", error=str(error))
            connection.keep()
            self.close()
            return False
        if sent < len(frame):
            with contextlib.suppress(OSError):  # it went away with the connection: the client comes again
                await asyncio.get_running_loop().sock_sendall(self._socket, frame[sent:])
        return True
