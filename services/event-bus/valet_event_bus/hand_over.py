"""Taking over client connections from api: a unix socket over which it passes them as file descriptors.

A message is a four-byte length and the JSON of a `HandOver`, with the connection attached to its first byte.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
from valet_protocol.requests import HandOver
from valet_service import logs

from valet_event_bus import limits
from valet_event_bus.errors import BadHandOver

_log = logs.get(__name__)
_decoder = msgspec.json.Decoder(HandOver)

Take = Callable[[HandOver, socket.socket], None]


class Unpacker:
    """Bytes and descriptors in, hand-overs out; either may come in pieces. Descriptors left over are closed."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._descriptors: list[int] = []

    def feed(self, data: bytes, descriptors: list[int]) -> list[tuple[HandOver, int]]:
        """What is complete. Raises `BadHandOver`."""
        self._bytes += data
        self._descriptors += descriptors
        complete: list[tuple[HandOver, int]] = []
        while len(self._bytes) >= 4:
            size = int.from_bytes(self._bytes[:4], "big")
            if size > limits.HAND_OVER_FRAME:
                raise BadHandOver(f"a message of {size} bytes")
            if len(self._bytes) < 4 + size:
                break
            if not self._descriptors:
                raise BadHandOver("a message without a connection")
            try:
                message = _decoder.decode(self._bytes[4 : 4 + size])
            except msgspec.MsgspecError as error:
                raise BadHandOver(str(error)) from error
            del self._bytes[: 4 + size]
            complete.append((message, self._descriptors.pop(0)))
        return complete

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


class Entrance:
    """Listens on the hand-over socket. Use with `async with`."""

    def __init__(self, path: Path, take: Take) -> None:
        self._path = path
        self._take = take
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peers: dict[socket.socket, Unpacker] = {}

    async def __aenter__(self) -> "Entrance":
        self._path.unlink(missing_ok=True)
        self._listener.setblocking(False)
        previous = os.umask(0o177)  # only this user may hand connections over
        try:
            self._listener.bind(str(self._path))
        finally:
            os.umask(previous)
        self._listener.listen(256)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for peer in list(self._peers):
            self._end(peer)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except BlockingIOError:
            return
        peer.setblocking(False)
        self._peers[peer] = Unpacker()
        asyncio.get_running_loop().add_reader(peer.fileno(), self._receive, peer)

    def _receive(self, peer: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(peer, 65536, 64)
            if not data:
                self._end(peer)
                return
            for message, descriptor in self._peers[peer].feed(data, descriptors):
                self._take(message, socket.socket(fileno=descriptor))
        except BlockingIOError:
            return
        except (OSError, BadHandOver) as error:
            _log.warning("hand_over_failed", error=str(error))
            self._end(peer)

    def _end(self, peer: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(peer.fileno())
        self._peers.pop(peer).close()
        peer.close()
