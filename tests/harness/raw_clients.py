"""Clients of the event bus on bare sockets, which read exactly so many bytes and may be cut after any of them.

They keep what came whole and resume from it; a doubled or misplaced event fails at once.
"""

import asyncio
import random
import re
import socket
from typing import Any

import msgspec
from valet_event_bus.testing import Bus, handed_over
from valet_protocol.requests import HandOver


class Got(msgspec.Struct, frozen=True):
    """One event as a client got it."""

    seq: int
    type: str
    id: str
    data: dict[str, Any]
    connection: int
    live: bool
    """Whether it came after the mark."""


class _Payload(msgspec.Struct):
    id: str
    type: str
    data: dict[str, Any]
    seq: int = 0


class _Message(msgspec.Struct):
    type: str
    session_id: str | None = None
    events: list[_Payload] = []
    problem: dict[str, Any] | None = None


_payload = msgspec.json.Decoder(_Payload)
_message = msgspec.json.Decoder(_Message)


class Follower:
    """A client that keeps what came whole, and resumes from it."""

    def __init__(self, bus: Bus, user: str, sessions: list[str]) -> None:
        self._bus = bus
        self._user = user
        self.got: dict[str, list[Got]] = {session: [] for session in sessions}
        self.synced: set[str] = set()
        self.connection = 0
        self.rest = b""
        self.sock: socket.socket

    def cursor(self, session: str) -> int:
        return self.got[session][-1].seq if self.got[session] else 0

    @property
    def live(self) -> bool:
        return len(self.synced) == len(self.got)

    async def connect(self) -> None:
        self.connection += 1
        self.synced.clear()
        self.rest = b""
        self.sock = await self.open()

    async def open(self) -> socket.socket:
        raise NotImplementedError

    def parse(self) -> None:
        """Take all that is whole from `rest`."""
        raise NotImplementedError

    async def read(self, most: int) -> int:
        """Take at most so many bytes; how many came. Fails when the event bus ended the connection."""
        while True:
            try:
                data = self.sock.recv(most)
                break
            except BlockingIOError:
                await _readable(self.sock)  # not the loop's sock_recv: cancelled, it may lose what it has read
        assert data, "the event bus ended the connection"
        self.rest += data
        self.parse()
        return len(data)

    def keep(self, session: str, seq: int, one: _Payload) -> None:
        assert seq > self.cursor(session), f"{seq} after {self.cursor(session)}: doubled or out of order"
        live = session in self.synced
        self.got[session].append(Got(seq, one.type, one.id, one.data, self.connection, live))

    def mark(self, session: str) -> None:
        assert session not in self.synced, "synced twice"
        self.synced.add(session)

    def cut(self, rng: random.Random) -> None:
        if rng.random() < 0.5:  # without a goodbye: the kernel answers with a reset
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


class SseFollower(Follower):
    _ID = re.compile(rb"id: (\d+)\nevent: ([a-z_.]+)\ndata: (.*)", re.S)

    async def open(self) -> socket.socket:
        (session,) = self.got
        self._head = False
        message = HandOver(kind="sse", user=self._user, session_id=session, after=self.cursor(session))
        return handed_over(self._bus.entrance, message)

    def parse(self) -> None:
        (session,) = self.got
        if not self._head:
            head, found, rest = self.rest.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 200 "), head
            self._head, self.rest = True, rest
        *frames, self.rest = self.rest.split(b"\n\n")
        for frame in frames:
            if match := self._ID.fullmatch(frame):
                one = _payload.decode(match[3])
                assert one.type == match[2].decode()
                self.keep(session, int(match[1]), one)
            elif frame.startswith(b"event: synced\n"):
                self.mark(session)
            else:
                assert frame.startswith(b":"), frame


class WsFollower(Follower):
    async def open(self) -> socket.socket:
        self._head = False
        message = HandOver(kind="ws", user=self._user, ws_key="dGhlIHNhbXBsZSBub25jZQ==")
        sock = handed_over(self._bus.entrance, message)
        for session in self.got:
            text = msgspec.json.encode({"type": "subscribe", "session_id": session, "after": self.cursor(session)})
            # a masked text frame of 126 or fewer bytes; a mask of zeros is one
            await asyncio.get_running_loop().sock_sendall(
                sock, b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text
            )
        return sock

    def parse(self) -> None:
        if not self._head:
            head, found, rest = self.rest.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 101 "), head
            self._head, self.rest = True, rest
        while (frame := _frame(self.rest)) is not None:
            opcode, text, size = frame
            self.rest = self.rest[size:]
            if opcode == 1:
                self._take(_message.decode(text))

    def _take(self, message: _Message) -> None:
        assert message.type != "error", message.problem
        session = message.session_id or ""
        if message.type == "events":
            for one in message.events:
                self.keep(session, one.seq, one)
        elif message.type == "synced":
            self.mark(session)


def _frame(data: bytes) -> tuple[int, bytes, int] | None:
    """Opcode, payload and size of the first frame, if it is whole (RFC 6455, 5.2)."""
    if len(data) < 2:
        return None
    size, at = data[1], 2
    if size >= 126:
        at = 4 if size == 126 else 10
        size = int.from_bytes(data[2:at], "big")
        if len(data) < at:
            return None
    return (data[0] & 15, data[at : at + size], at + size) if len(data) >= at + size else None
