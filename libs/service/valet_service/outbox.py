"""Writing to the log in order, many at a time, each event exactly once, whatever happens to the broker.

A publish that is not acknowledged may be stored all the same (measured: after a broker's restart it is), and a
client that reconnects by itself may flush what it still holds ahead of what is sent again. So an outbox owns a
connection that never reconnects: at the first sign of trouble it is thrown away, a new one is made, and everything
unacknowledged is sent again in order with the same ids. The broker drops what it has.

On a new connection the first event goes alone: while a stream is not there yet its appends are refused one by one,
and with many in flight it could appear in the midst of them and store the later ones first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol.codec import Outgoing

from valet_service import broker, limits, logs, tasks
from valet_service.errors import EventTooLarge, Stopped

_log = logs.get(__name__)


class _Ack(msgspec.Struct, kw_only=True):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_decoder = msgspec.json.Decoder(_Ack)


class _Entry:
    __slots__ = ("flushers", "number", "outgoing", "sent_at", "stored")

    def __init__(self, outgoing: Outgoing, stored: asyncio.Future[int]) -> None:
        self.outgoing = outgoing
        self.stored = stored
        self.sent_at = 0.0
        self.number = 0
        self.flushers: list[asyncio.Future[None]] = []
        """Who waits for this one and everything before it; apart from `stored`, which its owner may cancel."""


class Outbox:
    """An ordered, pipelined, exactly-once writer. One per process; start with `async with`.

    `connect` must give a fresh connection with `reconnect=False`. Closing does not wait: `flush()` first. Whoever
    still waits for an event then gets `Stopped`.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._waiting: deque[_Entry] = deque()
        self._sent: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._broken = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._generation = 0
        self._acknowledged = 0
        self._window = 1

    async def __aenter__(self) -> "Outbox":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task
        self._closed = True
        await tasks.end(self._task)
        self._room.set()
        for entry in (*self._sent, *self._waiting):
            for future in (entry.stored, *entry.flushers):
                if not future.done():
                    future.set_exception(Stopped("the outbox was closed before this event was stored"))
                    future.exception()  # nobody need look at it

    @property
    def backlog(self) -> int:
        """Events not yet acknowledged; a writer that can merge its chunks does so while this is not 0."""
        return len(self._waiting) + len(self._sent)

    def put(self, outgoing: Outgoing) -> asyncio.Future[int]:
        """Queue an event. The future gives its sequence once it is stored; cancelling the future does not unsend it.

        Raises `EventTooLarge` (the broker would end the connection instead of taking it) and `Stopped`.
        """
        if self._closed:
            raise Stopped("the outbox is closed")
        if len(outgoing.payload) > limits.MAX_EVENT_BYTES:
            raise EventTooLarge(outgoing.subject, len(outgoing.payload))
        entry = _Entry(outgoing, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if len(self._waiting) >= limits.OUTBOX_QUEUE:
            self._room.clear()
        self._wake.set()
        return entry.stored

    async def room(self) -> None:
        """Wait until the queue takes more. A writer calls this before it reads more from its own source."""
        await self._room.wait()

    async def flush(self) -> None:
        """Wait until everything queued so far is stored. Raises `Stopped` when the outbox is closed meanwhile."""
        queued = self._waiting or self._sent
        if queued:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queued[-1].flushers.append(done)
            await done

    async def _run(self) -> None:
        pause = limits.RECONNECT_WAIT
        loop = asyncio.get_running_loop()
        while True:
            began, before = loop.time(), self._acknowledged
            try:
                nc = await asyncio.wait_for(self._connect(), limits.OUTBOX_CONNECT_TIMEOUT)
                try:
                    await self._drive(nc)
                finally:
                    await broker.close(nc)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                _log.info("outbox_reconnects", error=reason, unacknowledged=self.backlog)
            except Exception as error:  # noqa: BLE001 - a writer that ends without a word would lose all it holds
                _log.exception("outbox_failed", error=str(error), unacknowledged=self.backlog)
            # a broker that is away, or is there and refuses, is not asked in a tight loop
            worked = self._acknowledged > before or loop.time() - began > limits.OUTBOX_RECONNECT_MAX
            pause = limits.RECONNECT_WAIT if worked else min(pause * 2, limits.OUTBOX_RECONNECT_MAX)
            await asyncio.sleep(pause)

    async def _drive(self, nc: Client) -> None:
        """Send until something is wrong with the connection."""
        self._generation += 1
        self._broken = False
        self._window = 1
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        inbox = nc.new_inbox()
        await broker.subscribe(nc, f"{inbox}.*", self._receiver(self._generation))
        number = 0
        loop = asyncio.get_running_loop()
        while nc.is_connected and not self._broken:
            if self._sent and loop.time() - self._sent[0].sent_at > limits.PUBLISH_TIMEOUT:
                _log.warning("append_not_acknowledged", subject=self._sent[0].outgoing.subject)
                return
            self._wake.clear()
            while self._waiting and len(self._sent) < self._window and not self._broken:
                entry = self._waiting.popleft()
                self._sent.append(entry)
                entry.sent_at = loop.time()
                entry.number = number = number + 1
                out = entry.outgoing
                headers = {"Nats-Msg-Id": out.msg_id}
                await nc.publish(out.subject, out.payload, reply=f"{inbox}.{number}", headers=headers)
                if len(self._waiting) < limits.OUTBOX_QUEUE // 2:
                    self._room.set()
            # woken by a new event, an acknowledgement, a fault; otherwise looks at the connection and the oldest's age
            try:
                async with asyncio.timeout(limits.CUT_POLL if self._sent else limits.PUBLISH_TIMEOUT):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _receiver(self, generation: int) -> Callable[[Msg], Awaitable[None]]:
        async def receive(message: Msg) -> None:
            if generation != self._generation:
                return
            # one connection, one stream: acknowledgements come in the order of the publishes; if one does not,
            # sending everything again is safe
            ack = None if message.headers and message.headers.get("Status") else _decoder.decode(message.data)
            number = int(message.subject.rpartition(".")[2])
            if ack is None or ack.error is not None or not self._sent or self._sent[0].number != number:
                if not self._broken:
                    answer = message.data.decode(errors="replace")
                    _log.warning("append_refused", answer=answer, headers=message.headers)
                self._broken = True
            elif not self._broken:
                self._window = limits.OUTBOX_WINDOW
                self._acknowledged += 1
                entry = self._sent.popleft()
                if not entry.stored.done():
                    entry.stored.set_result(ack.seq)
                for flusher in entry.flushers:
                    if not flusher.done():
                        flusher.set_result(None)
            self._wake.set()

        return receive
