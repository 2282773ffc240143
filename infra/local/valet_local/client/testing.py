"""A small HTTP server for tests of programs that use the client: it speaks the documented API as far as a test says.

Real sockets, so that connections can be cut anywhere: in the middle of a frame, of a character, before an answer.
"""

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import msgspec
from valet_protocol.codec import decode_data, decode_envelope, encode, new_event
from valet_protocol.errors import Problem
from valet_protocol.events.agent import Tokens
from valet_protocol.events.envelope import Data, Event
from valet_protocol.requests import SessionView

from valet_local.client.endpoint import Endpoint
from valet_local.client.follow import Entry

SESSION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
"""The session that tests speak of."""

VIEW = SessionView(
    id=SESSION,
    status="ready",
    status_detail="",
    owner="u",
    title="Fix",
    repo="https://example.org/team/calc.git",
    branch=None,
    model="p/m",
    created_at="2026-01-01T00:00:00.000Z",
    updated_at="2026-01-01T00:00:00.000Z",
    epoch=1,
    cost=1.5,
    tokens=Tokens(),
    turns=2,
    seq=9,
)


def event(data: Data) -> Event:
    """An event of the session, of any type but a chunk's."""
    return new_event(data, id="0" * 26, session_id=SESSION, now_ms=0)


def entry(event: Event, seq: int = 1) -> Entry:
    """An event as a follower gets it."""
    raw = encode(event, source="/test").payload
    envelope = decode_envelope(raw)
    return Entry(seq=seq, envelope=envelope, data=decode_data(envelope), raw=raw)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes

    @property
    def cursor(self) -> int:
        """Where its stream is to begin."""
        return int(self.headers["last-event-id"])


class FakeApi:
    """Serves `answers` by (method, path without query) and, for `…/events`, the log from the cursor on."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, msgspec.Struct | list[object]]] = {}
        self.bodies: dict[str, bytes] = {}
        """What a GET of a path streams, in pieces, as JSON lines; it is cut like the log's streams."""
        self.seen: list[Seen] = []
        self.hang_up = 0
        """So many connections are closed without an answer."""
        self.restarting = 0
        """So many requests are answered with 503."""
        self.cuts: list[int] = []
        """Each stream is cut after so many bytes, in turn; when none is left streams stay open."""
        self.refuse_streams = False
        """Streams are answered like an unknown session's."""
        self.on_request: Callable[[Seen], None] = lambda seen: None
        self._log: list[bytes] = []
        self._grown = asyncio.Condition()
        self._closing = False
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def append(self, *events: Event) -> None:
        """Add to the log; open streams get it at once. Sequences are 1, 2, 3 …"""
        async with self._grown:
            self._log += (encode(event, source="/test").payload for event in events)
            self._grown.notify_all()

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        assert self._server is not None
        return Endpoint(url=f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}", token="secret")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        async with self._grown:
            self._closing = True
            self._grown.notify_all()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            seen = await _request(reader)
            self.seen.append(seen)
            self.on_request(seen)
            if self.hang_up:
                self.hang_up -= 1
            elif self.restarting:
                self.restarting -= 1
                writer.write(_problem(503, "restarting", "the ledger restarts"))
            elif seen.path.endswith("/events") and not self.refuse_streams:
                await self._stream(seen, writer)
            elif seen.path in self.bodies:
                await self._pieces(self.bodies[seen.path], writer)
            else:
                writer.write(self._answer(seen))
            if writer.can_write_eof():
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone, which is what some tests are about
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, seen: Seen) -> bytes:
        found = self.answers.get((seen.method, seen.path))
        if found is None:
            return _problem(404, "session_not_found", "there is no such session")
        status, body = found
        return _response(status, "application/json", msgspec.json.encode(body))

    async def _pieces(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        cut = self.cuts.pop(0) if self.cuts else None
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for start in range(0, len(body[:cut]), 1000):
            piece = body[:cut][start : start + 1000]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if cut is None:
            writer.write(b"0\r\n\r\n")

    async def _stream(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        cut = self.cuts.pop(0) if self.cuts else None
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        sent = 0
        for frame in self._history(seen.cursor):
            if cut is not None and sent + len(frame) > cut:
                writer.write(frame[: cut - sent])
                await writer.drain()
                return
            writer.write(frame)
            sent += len(frame)
        position = len(self._log)
        while True:
            await writer.drain()
            async with self._grown:
                while len(self._log) == position and not self._closing:
                    await self._grown.wait()
            if self._closing:
                return
            for frame in self._frames(position):
                writer.write(frame)
            position = len(self._log)

    def _history(self, cursor: int) -> Iterator[bytes]:
        yield from self._frames(cursor)
        yield b'event: synced\ndata: {"seq":%d}\n\n: keep-alive\n\n' % len(self._log)

    def _frames(self, after: int) -> Iterator[bytes]:
        for seq, payload in enumerate(self._log[after:], after + 1):
            type = msgspec.json.decode(payload)["type"]
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, type.encode(), payload)


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.lower(): value for name, _, value in (entry.partition(": ") for entry in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path, _, query = target.partition("?")
    return Seen(method=method, path=path, query=query, headers=headers, body=body)


def _problem(status: int, code: str, detail: str) -> bytes:
    problem = Problem(title=code, status=status, detail=detail, code=code)
    return _response(status, "application/problem+json", msgspec.json.encode(problem))


def _response(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
