"""Writing to the log in order, many at a time, each event exactly once, whatever happens to the broker.

A publish that is not acknowledged may be stored all the same (measured: after a broker's restart it is), and a
client that reconnects by itself may flush what it still holds ahead of what is sent again. So an outbox owns a
connection that never reconnects: at the first sign of trouble it is thrown away, a new one is made, and everything
unacknowledged is sent again in order with the same ids. The broker drops what it has.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol.codec import Outgoing

from valet_service import limits, logs
from valet_service.errors import EventTooLarge, Stopped

_log = logs.get(__name__)


class _Ack(msgspec.Struct, kw_only=True):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_decoder = msgspec.json.Decoder(_Ack)


class _Entry:
    __slots__ = ("number", "outgoing", "sent_at", "stored")

    def __init__(self, outgoing: Outgoing, stored: asyncio.Future[int]) -> None:
        self.outgoing = outgoing
        self.stored = stored
        self.sent_at = 0.0
        self.number = 0


class Outbox:
    """An ordered, pipelined, exactly-once writer. One per process; start with `async with`.

    `connect` must give a fresh connection with `reconnect=False`.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._waiting: deque[_Entry] = deque()
        self._sent: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._broken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._generation = 0

    async def __aenter__(self) -> "Outbox":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for entry in (*self._sent, *self._waiting):
            if not entry.stored.done():
                entry.stored.set_exception(Stopped("the outbox was closed before this event was stored"))
                entry.stored.exception()

    @property
    def backlog(self) -> int:
        """Events not yet acknowledged; a writer that can merge its chunks does so while this is not 0."""
        return len(self._waiting) + len(self._sent)

    def put(self, outgoing: Outgoing) -> asyncio.Future[int]:
        """Queue an event. The future gives its sequence once it is stored.

        Raises `EventTooLarge`: the broker would end the connection instead of taking it.
        """
        if len(outgoing.payload) > limits.MAX_EVENT_BYTES:
            raise EventTooLarge(outgoing.subject, len(outgoing.payload))
        entry = _Entry(outgoing, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        self._idle.clear()
        if len(self._waiting) >= limits.OUTBOX_QUEUE:
            self._room.clear()
        self._wake.set()
        return entry.stored

    async def room(self) -> None:
        """Wait until the queue takes more. A writer calls this before it reads more from its own source."""
        await self._room.wait()

    async def flush(self) -> None:
        """Wait until everything queued so far is stored."""
        await self._idle.wait()

    async def _run(self) -> None:
        pause = limits.RECONNECT_WAIT
        while True:
            try:
                nc = await self._connect()
            except (OSError, nats.errors.Error, TimeoutError) as error:
                _log.debug("outbox_waits_for_broker", error=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, limits.OUTBOX_RECONNECT_MAX)
                continue
            pause = limits.RECONNECT_WAIT
            try:
                await self._drive(nc)
            except (OSError, nats.errors.Error) as error:
                _log.info("outbox_reconnects", error=str(error), unacknowledged=len(self._sent))
            finally:
                await _discard(nc)

    async def _drive(self, nc: Client) -> None:
        self._generation += 1
        self._broken = asyncio.Event()
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        inbox = nc.new_inbox()
        await nc.subscribe(
            f"{inbox}.*", cb=self._receiver(self._generation), pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        number = 0
        loop = asyncio.get_running_loop()
        while not self._broken.is_set():
            if not nc.is_connected:
                return
            if self._sent and loop.time() - self._sent[0].sent_at > limits.PUBLISH_TIMEOUT:
                return
            while self._waiting and len(self._sent) < limits.OUTBOX_WINDOW:
                entry = self._waiting[0]
                entry.sent_at = loop.time()
                out = entry.outgoing
                entry.number = number = number + 1
                headers = {"Nats-Msg-Id": out.msg_id}
                await nc.publish(out.subject, out.payload, reply=f"{inbox}.{number}", headers=headers)
                self._sent.append(self._waiting.popleft())
                if len(self._waiting) < limits.OUTBOX_QUEUE // 2:
                    self._room.set()
            self._wake.clear()
            try:
                # woken by a new event, an acknowledgement, a fault; otherwise looks at the oldest one's age
                await asyncio.wait_for(self._wake.wait(), 0.5 if self._sent else 5.0)
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
                _log.warning("append_refused", answer=message.data.decode(errors="replace"), headers=message.headers)
                self._broken.set()
            else:
                entry = self._sent.popleft()
                if not entry.stored.done():
                    entry.stored.set_result(ack.seq)
                if not self._sent and not self._waiting:
                    self._idle.set()
            self._wake.set()

        return receive


async def _discard(nc: Client) -> None:
    try:
        await asyncio.wait_for(nc.close(), limits.CONNECT_TIMEOUT)
    except (OSError, TimeoutError, nats.errors.Error) as error:
        _log.debug("connection_discarded", error=str(error))
