"""HTTP by hand for measuring: a stream read from a bare socket, and requests over one kept connection.

A general client costs more than what is measured here.
"""

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from valet_local.bench import limits
from valet_local.bench.errors import BenchFailed
from valet_local.client.endpoint import Endpoint

SYNCED = b"event: synced\n"
STAMP = re.compile(rb"@(\d{6,20}) ")
"""A moment of the monotonic clock (ns) in the text of a delta."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Bytes as they came from the socket, and when (monotonic ns)."""

    at_ns: int
    data: bytes


def request(endpoint: Endpoint, method: str, path: str, body: bytes | None = None) -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {urlsplit(endpoint.url).netloc}\r\n"
    head += f"authorization: Bearer {endpoint.token}\r\n"
    if body is None:
        return f"{head}\r\n".encode()
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def follow_path(session_id: str, after: int) -> str:
    """Where a session's events are."""
    return f"/api/sessions/{session_id}/events?after={after}"


def address(endpoint: Endpoint) -> tuple[str, int]:
    """Host and port of a platform."""
    parts = urlsplit(endpoint.url)
    return parts.hostname or "127.0.0.1", parts.port or 80


class Stream:
    """A session's events over a bare blocking socket. A context manager; iterate over `pieces`."""

    def __init__(self, place: tuple[str, int], greeting: bytes) -> None:
        self._socket = socket.create_connection(place, timeout=limits.SILENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greeting:
            self._socket.sendall(greeting)

    @classmethod
    def of(cls, endpoint: Endpoint, session_id: str, after: int) -> "Stream":
        """Follow a session from a cursor."""
        return cls(address(endpoint), request(endpoint, "GET", follow_path(session_id, after)))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def pieces(self) -> Iterator[Piece]:
        """What comes, as it comes; a comment counts, so a living stream is never silent for long.

        Raises `BenchFailed` when it is silent for too long.
        """
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                raise BenchFailed(f"a stream said nothing for {limits.SILENCE:g} s") from None
            if not data:
                return
            yield Piece(time.monotonic_ns(), data)

    def until(self, mark: bytes, within: float) -> list[Piece]:
        """The pieces up to the one in which `mark` is complete. Raises `BenchFailed`."""
        deadline = time.monotonic() + within
        found: list[Piece] = []
        tail = b""
        for piece in self.pieces():
            found.append(piece)
            if mark in tail + piece.data:
                return found
            tail = (tail + piece.data)[-len(mark) :]
            if time.monotonic() > deadline:
                break
        said = b"".join(piece.data for piece in found)[-300:]
        raise BenchFailed(f"{mark.decode()!r} did not come within {within:g} s; the last was {said!r}")


def delays_ms(pieces: list[Piece]) -> list[float]:
    """From each stamp in the pieces to the arrival of the piece in which it was complete, in milliseconds.

    Stamps of texts that are completed come a second time; only the first counts.
    """
    delays: dict[bytes, float] = {}
    rest = b""
    for piece in pieces:
        data = rest + piece.data
        for found in STAMP.finditer(data):
            stamp = found[1]
            if stamp not in delays:
                delays[stamp] = (piece.at_ns - int(stamp)) / 1e6
        # a stamp that is cut in two is completed by the next piece
        rest = data[-24:]
    return list(delays.values())


class Kept:
    """Requests one after the other over one connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Kept":
        self._reader, self._writer = await asyncio.open_connection(*address(self._endpoint))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    async def post(self, path: str, body: bytes) -> bytes:
        """The answer's body. Raises `BenchFailed` for anything but success."""
        assert self._reader
        assert self._writer
        self._writer.write(request(self._endpoint, "POST", path, body))
        async with asyncio.timeout(limits.STEP):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lengths = re.findall(r"(?im)^content-length: *(\d+)", head)
            length = int(lengths[0]) if lengths else 0
            answer = await self._reader.readexactly(length)
        if head.split(" ", 2)[1] not in ("200", "201", "202"):
            raise BenchFailed(f"POST {path} was answered: {answer.decode(errors='replace')[:300]}")
        return answer
