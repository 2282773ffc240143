"""For tests of the event bus and of what stands before it: real servers, and a client handed over as api does it.

The processes, the sockets, the hand-over and the bytes are real; only api's part (who may watch what) is left out.
"""

import asyncio
import base64
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from valet_protocol import codec
from valet_protocol.events.agent import TextCompleted, Tokens
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Event
from valet_protocol.ids import new_id
from valet_protocol.requests import HandOver, SessionView
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Protocol, Side

START = 10.0
"""Seconds for a process to be ready on a machine that is busy with other tests."""


DATABASE_START = 60.0
"""The same for PostgreSQL, whose start and end wait for the disk."""


class Bus:
    """`python -m valet_event_bus`, started as the supervisor starts it."""

    def __init__(self, nats: BrokerProcess, run_dir: Path, database_url: str = "") -> None:
        self.entrance = run_dir / "event-bus.sock"
        self._nats = nats
        self._database_url = database_url
        self._run_dir = run_dir
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._run_dir.mkdir(exist_ok=True, parents=True)
        path = self._run_dir / "notify.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(path))
            channel.settimeout(START)
            environ = {
                **os.environ,
                "VALET_NATS_URL": self._nats.url,
                "VALET_DATABASE_URL": self._database_url,
                "VALET_RUN_DIR": str(self._run_dir),
                "VALET_DATA_DIR": str(self._run_dir),
                "NOTIFY_SOCKET": str(path),
            }
            self.process = subprocess.Popen([sys.executable, "-m", "valet_event_bus"], env=environ)
            assert channel.recv(100) == b"READY=1"

    def end(self, number: int = signal.SIGTERM) -> float:
        """Seconds it took to end."""
        assert self.process
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(10)
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)


class Database:
    """The embedded PostgreSQL, to be stopped and started at will."""

    def __init__(self, folder: Path) -> None:
        from valet_local import layout, postgres  # only tests have it

        places = layout.layout(folder)
        layout.prepare(places)
        self._postgres = postgres
        self._prepared = postgres.prepare(places)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._postgres.clear_remains(self._prepared.data)
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(self._prepared.command, stdout=null, stderr=null, start_new_session=True)
        until = time.monotonic() + DATABASE_START
        while not self._postgres.is_ready(self._prepared.data, self._process.pid):
            assert time.monotonic() < until, "PostgreSQL does not get ready"
            time.sleep(0.02)

    async def create(self) -> str:
        """The URL of a new empty database in it."""
        name = f"t{new_id().lower()}"
        connection = await asyncpg.connect(self._prepared.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        base, _, query = self._prepared.url.partition("?")
        return f"{base.rpartition('/')[0]}/{name}?{query}"

    def end(self, number: int = signal.SIGINT) -> None:
        """Cut everybody off and stop; after a kill -9 the next start takes longer."""
        if self._process:
            self._process.send_signal(number)
            self._process.wait(DATABASE_START)
            self._process = None
            self._postgres.clear_remains(self._prepared.data)


def handed_over(entrance: Path, message: HandOver) -> socket.socket:
    """A TCP connection over loopback whose other end the event bus now owns."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=5)
        server, _ = listener.accept()
    payload = msgspec.json.encode(message)
    with server, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.connect(str(entrance))
        socket.send_fds(door, [len(payload).to_bytes(4, "big") + payload], [server.fileno()])
    client.setblocking(False)
    return client


class SseReader:
    """A client that collects the sequences of its frames, in whatever pieces the bytes come."""

    _ID = re.compile(rb"^id: (\d+)$", re.M)

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seqs: list[int] = []
        self.synced_after: int | None = None
        """How many events had come when the mark came."""
        self.synced_seq: int | None = None
        self.head = b""
        self.ended = False
        self._rest = b""
        self._changed = asyncio.Event()

    def take(self, data: bytes) -> None:
        self._rest += data
        if not self.head and b"\r\n\r\n" in self._rest:
            self.head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        if self.head:
            *frames, self._rest = self._rest.split(b"\n\n")
            for frame in frames:
                if match := self._ID.search(frame):
                    self.seqs.append(int(match[1]))
                elif frame.startswith(b"event: synced"):
                    assert self.synced_after is None, "synced twice"
                    self.synced_after = len(self.seqs)
                    self.synced_seq = int(frame.rpartition(b":")[2].rstrip(b"}"))
        self._changed.set()

    async def run(self) -> None:
        """Read until the connection ends."""
        loop = asyncio.get_running_loop()
        while not self.ended:
            try:
                data = await loop.sock_recv(self.sock, 1 << 18)
            except OSError:
                data = b""
            self.ended = not data
            self.take(data)

    async def wait(self, condition: Callable[["SseReader"], bool], timeout: float = 30.0) -> None:
        """Wait for a condition while somebody else runs `run`."""
        async with asyncio.timeout(timeout):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def until(self, condition: Callable[["SseReader"], bool], timeout: float = 30.0) -> None:
        """Read until a condition holds."""
        task = asyncio.create_task(self.run())
        try:
            await self.wait(condition, timeout)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def close(self) -> None:
        self.sock.close()


class Socket:
    """A WebSocket client on a connection that was handed over. Its grammar is the `websockets` library's."""

    def __init__(self, bus: Bus, user: str = "U", name: str = "") -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock = handed_over(bus.entrance, HandOver(kind="ws", user=user, name=name, ws_key=key))
        self._grammar = Protocol(Side.CLIENT, state=OPEN)
        self._messages: list[dict[str, Any]] = []
        self._head: bytes | None = None

    async def send(self, message: object) -> None:
        await self.text(msgspec.json.encode(message))

    async def text(self, data: bytes) -> None:
        self._grammar.send_text(data)
        await self._flush()

    async def _flush(self) -> None:
        for data in self._grammar.data_to_send():
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def subscribe(self, session_id: str, after: int = 0) -> None:
        """Watch a session, and wait for its mark."""
        await self.send({"type": "subscribe", "session_id": session_id, "after": after})
        await self.until(lambda message: message["type"] == "synced" and message["session_id"] == session_id)

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message for which a condition holds; what comes before it is left out."""
        while True:
            message = await self.receive(presence=True)
            if condition(message):
                return message

    async def receive(self, *, presence: bool = False) -> dict[str, Any]:
        """The next message; those about presence, which may come at any time, only if they are wanted."""
        while True:
            message = await self._next()
            if presence or message["type"] != "presence":
                return message

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while not self._messages:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
                assert data, "the connection ended"
                if self._head is None:
                    self._head, _, data = data.partition(b"\r\n\r\n")
                    assert self._head.startswith(b"HTTP/1.1 101 ")
                self._grammar.receive_data(data)
                for frame in self._grammar.events_received():
                    if isinstance(frame, Frame) and frame.opcode is Opcode.TEXT:
                        self._messages.append(msgspec.json.decode(frame.data))
                await self._flush()
        return self._messages.pop(0)

    async def events(self, count: int) -> tuple[dict[str, list[int]], list[str]]:
        """Sequences by session until so many have come; and the sessions whose mark came, in that order."""
        seqs: dict[str, list[int]] = {}
        synced: list[str] = []
        while sum(map(len, seqs.values())) < count:
            message = await self.receive()
            if message["type"] == "events":
                seqs.setdefault(message["session_id"], []).extend(event["seq"] for event in message["events"])
            else:
                assert message["type"] == "synced"
                synced.append(message["session_id"])
        return seqs, synced


def session_view(session_id: str, seq: int = 1) -> SessionView:
    """A session as a ledger shows it."""
    return SessionView(
        id=session_id,
        status="ready",
        status_detail="",
        owner="U",
        title="",
        repo=None,
        branch=None,
        model="a/b",
        created_at="",
        updated_at="",
        epoch=1,
        cost=0,
        tokens=Tokens(),
        turns=0,
        seq=seq,
    )


def some_event(session_id: str, number: int, size: int = 0) -> codec.Outgoing:
    """An event whose text is its number, so that a reader can tell which one it is."""
    data = TextCompleted(message_id="M", part_id="P", kind="text", text=f"{number} {'x' * size}")
    return codec.encode(
        codec.new_event(data, id=new_id(), session_id=session_id, now_ms=1_700_000_000_000), source="/test"
    )


def some_delta(session_id: str, message_id: str, number: int) -> codec.Outgoing:
    data = Delta(message_id=message_id, part_id="P", offset=number, text="d")
    event = Event(id=new_id(), type="delta.text", session_id=session_id, time_ms=1_700_000_000_000, data=data)
    return codec.encode(event, source="/test")


async def stored(outbox: Outbox, events: list[codec.Outgoing]) -> list[int]:
    """Publish and wait; the sequences."""
    return await asyncio.wait_for(asyncio.gather(*[outbox.put(event) for event in events]), 60)
