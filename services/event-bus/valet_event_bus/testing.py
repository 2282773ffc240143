"""For tests of the event bus and of what stands before it: real servers, and a client handed over as api does it.

The processes, the sockets, the hand-over and the bytes are real; only api's part (who may watch what) is left out.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from valet_protocol import codec
from valet_protocol.events.agent import TextCompleted
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Event
from valet_protocol.ids import new_id
from valet_protocol.requests import HandOver
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

START = 10.0
"""Seconds for a process to be ready on a machine that is busy with other tests."""


class Bus:
    """`python -m valet_event_bus`, started as the supervisor starts it."""

    def __init__(self, nats: BrokerProcess, run_dir: Path) -> None:
        self.entrance = run_dir / "event-bus.sock"
        self._nats = nats
        self._run_dir = run_dir
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = self._run_dir / "notify.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(path))
            channel.settimeout(START)
            environ = {
                **os.environ,
                "VALET_NATS_URL": self._nats.url,
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
