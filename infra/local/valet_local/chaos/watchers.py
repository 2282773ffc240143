"""Clients that follow sessions and write down everything as it came: over SSE, and over one WebSocket.

Written from the documentation alone. Unlike a client for people they take nothing for granted and repair nothing:
what comes twice is written down twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from valet_local.chaos import limits
from valet_local.chaos.records import ClientRecord, Received


class _Data(msgspec.Struct):
    part_id: str = ""
    offset: int = 0
    text: str = ""


class _Envelope(msgspec.Struct):
    id: str
    type: str
    data: msgspec.Raw
    seq: int = 0
    """On a WebSocket."""


class _Frame(msgspec.Struct):
    type: str
    session_id: str = ""
    events: list[_Envelope] = []


_envelope = msgspec.json.Decoder(_Envelope)
_frame = msgspec.json.Decoder(_Frame)
_data = msgspec.json.Decoder(_Data)


class _Book:
    """What one client has of one session."""

    def __init__(self, name: str, session_id: str, clock: Callable[[], float]) -> None:
        self._name = name
        self.session_id = session_id
        self._clock = clock
        self.cursor = 0
        self.connection = -1
        self._received: list[Received] = []

    def take(self, seq: int, envelope: _Envelope) -> None:
        part = _Data()
        if envelope.type.startswith("delta.") or envelope.type == "agent.text_completed":
            part = _data.decode(envelope.data)
        self._received.append(
            Received(
                seq=seq,
                id=envelope.id,
                type=envelope.type,
                at=round(self._clock(), 3),
                connection=self.connection,
                part=part.part_id,
                offset=part.offset,
                text=part.text,
            )
        )
        self.cursor = seq

    def record(self) -> ClientRecord:
        return ClientRecord(
            name=self._name,
            session_id=self.session_id,
            received=self._received,
            connections=self.connection + 1,
        )


class SseClient:
    """Follows one session from its beginning and resumes by `Last-Event-ID` whenever it is cut."""

    def __init__(self, url: str, token: str, session_id: str, name: str, clock: Callable[[], float]) -> None:
        self._url = f"{url}/api/sessions/{session_id}/events"
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        self._book = _Book(name, session_id, clock)
        self._cut = asyncio.Event()

    def cut(self) -> None:
        """Go away in the middle of whatever it is, and come back."""
        self._cut.set()

    def cursors(self) -> dict[str, int]:
        """Session → the last sequence it has."""
        return {self._book.session_id: self._book.cursor}

    def records(self) -> list[ClientRecord]:
        """Everything that came."""
        return [self._book.record()]

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._cut.clear()
            await _until_cut(self._follow(), self._cut)
            await asyncio.sleep(limits.STREAM_RETRY)

    async def _follow(self) -> None:
        timeout = httpx.Timeout(limits.STREAM_CONNECT, read=limits.STREAM_SILENCE)
        headers = {**self._headers, "Last-Event-ID": str(self._book.cursor)}
        with contextlib.suppress(httpx.HTTPError):
            async with (
                httpx.AsyncClient(timeout=timeout, trust_env=False) as http,
                http.stream("GET", self._url, headers=headers) as response,
            ):
                if response.status_code != 200:
                    return
                self._book.connection += 1
                async for seq, data in _frames(response.aiter_lines()):
                    self._book.take(seq, _envelope.decode(data))


async def _frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int, str]]:
    """Sequence and data of each complete frame with an id."""
    ident = ""
    data: list[str] = []
    async for line in lines:
        if not line:
            if ident and data:
                yield int(ident), "\n".join(data)
            ident, data = "", []
        elif line.startswith("id:"):
            ident = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


class WsClient:
    """Follows many sessions over one WebSocket, each from its own cursor."""

    def __init__(self, url: str, token: str, name: str, clock: Callable[[], float]) -> None:
        self._url = url.replace("http", "ws", 1) + "/ws"
        self._token = token
        self._name = name
        self._clock = clock
        self._books: dict[str, _Book] = {}
        self._cut = asyncio.Event()
        self._socket: ClientConnection | None = None

    def cut(self) -> None:
        """Go away in the middle of whatever it is, and come back."""
        self._cut.set()

    def cursors(self) -> dict[str, int]:
        """Session → the last sequence it has."""
        return {session_id: book.cursor for session_id, book in self._books.items()}

    def records(self) -> list[ClientRecord]:
        """Everything that came."""
        return [book.record() for book in self._books.values()]

    async def add(self, session_id: str) -> None:
        """Follow one more session from its beginning."""
        book = self._books[session_id] = _Book(self._name, session_id, self._clock)
        if self._socket is not None:
            with contextlib.suppress(OSError, WebSocketException):
                await self._subscribe(self._socket, book)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._cut.clear()
            await _until_cut(self._follow(), self._cut)
            await asyncio.sleep(limits.STREAM_RETRY)

    async def _follow(self) -> None:
        with contextlib.suppress(OSError, WebSocketException):
            async with connect(
                self._url,
                additional_headers={"Authorization": f"Bearer {self._token}"},
                open_timeout=limits.STREAM_CONNECT,
                ping_timeout=limits.STREAM_SILENCE,
                close_timeout=1,
                max_size=None,
                proxy=None,
            ) as socket:
                for book in tuple(self._books.values()):
                    await self._subscribe(socket, book)
                self._socket = socket
                try:
                    async for message in socket:
                        self._take(message)
                finally:
                    self._socket = None

    async def _subscribe(self, socket: ClientConnection, book: _Book) -> None:
        book.connection += 1
        order = {"type": "subscribe", "session_id": book.session_id, "after": book.cursor}
        await socket.send(msgspec.json.encode(order).decode())

    def _take(self, message: str | bytes) -> None:
        frame = _frame.decode(message)
        book = self._books.get(frame.session_id)
        if frame.type == "events" and book is not None:
            for envelope in frame.events:
                book.take(envelope.seq, envelope)


Client = SseClient | WsClient


async def _until_cut(following: Awaitable[None], cut: asyncio.Event) -> None:
    """Follow until the stream ends or the client goes away: its connection is then dropped as it is."""
    work = asyncio.ensure_future(following)
    leaving = asyncio.create_task(cut.wait())
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        work.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
