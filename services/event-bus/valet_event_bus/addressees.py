"""A user's connections, wherever they are: what concerns the person and no session in particular."""

from typing import Protocol

from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects
from valet_service import broker

from valet_event_bus.frames import text_frame


class Addressee(Protocol):
    """A connection of one user. Hashable by identity."""

    @property
    def user(self) -> str:
        """Whose it is."""
        ...

    def write(self, data: bytes) -> None:
        """Send without waiting."""
        ...


class Addressees:
    """Gives what any replica says to a user to the connections that user has here."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Addressee, None]] = {}

    def add(self, connection: Addressee) -> None:
        self._of.setdefault(connection.user, {})[connection] = None

    def remove(self, connection: Addressee) -> None:
        """One that was never added is fine."""
        connections = self._of.get(connection.user, {})
        connections.pop(connection, None)
        if not connections:
            self._of.pop(connection.user, None)

    async def listen(self, nc: Client) -> None:
        """Begin to hear what is said to users. What is said are whole WebSocket messages: only replicas may."""
        await broker.subscribe(nc, subjects.live("user", "*.notification"), self._receive)

    async def _receive(self, message: Msg) -> None:
        connections = self._of.get(message.subject.split(".")[2])
        if connections:
            frame = text_frame(message.data)
            for connection in list(connections):
                connection.write(frame)
