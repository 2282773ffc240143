"""Reading the session log in order from a sequence on, without end, whatever happens to the broker.

The broker's ordered consumer as a state machine of its own: an ephemeral push consumer without acknowledgements,
watched by its consumer sequence (a gap means something was lost), by heartbeats (silence means it is gone) and by the
connection (a reconnect means it may be gone). In each case a new one is made from the next sequence: nothing is
missed, nothing comes twice.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from valet_protocol import subjects

from valet_service import broker, limits, logs, tasks

_log = logs.get(__name__)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored event, undecoded."""

    seq: int
    subject: str
    payload: bytes
    pending: int
    """How many more of the filtered log the broker held behind this one when it was sent."""


class _Created(msgspec.Struct, kw_only=True):
    name: str = ""
    num_pending: int = 0
    error: dict[str, object] | None = None


class LogReader:
    """Reads the log from `start` (inclusive) for some subject filters. Use with `async with`, then `batch()`.

    `latest`: begin with the last event of every subject, whatever its age, and go on with all that follow; `start` is
    not used then. `removes`: whether the credentials allow it to remove its consumer when it closes; else the broker
    does so after half a minute.
    """

    def __init__(
        self, nc: Client, filters: Sequence[str], *, start: int, latest: bool = False, removes: bool = True
    ) -> None:
        self._nc = nc
        self._filters = list(filters)
        self._next = start
        self._latest = latest
        self._removes = removes
        self._buffer: deque[Entry] = deque()
        self._bytes = 0
        self._flow_reply = ""
        self._filled = asyncio.Event()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._delivered = 0
        self._heard = 0.0
        self._watcher: asyncio.Task[None] | None = None
        self._reset = asyncio.Event()
        self._opened_at = 0
        self.pending_at_start = 0
        """Events the broker held for the filters when reading (re)started."""

    async def __aenter__(self) -> "LogReader":
        self._opened_at = self._nc.stats["reconnects"]
        await self._open()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watcher
        await tasks.end(self._watcher)
        await self._close()

    @property
    def held_bytes(self) -> int:
        """What is buffered here and not yet read."""
        return self._bytes

    async def batch(self, limit: int) -> list[Entry]:
        """Up to `limit` entries, at least one; waits for the first. In order, none missing, none twice.

        Cancelling it loses nothing: entries are taken only when they are returned.
        """
        if self._flow_reply and self._bytes < limits.READER_BUFFER_BYTES:
            reply, self._flow_reply = self._flow_reply, ""
            await self._publish(reply)
        while not self._buffer:
            self._filled.clear()
            await self._filled.wait()
        entries = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._bytes -= sum(len(entry.payload) + limits.READER_ENTRY_BYTES for entry in entries)
        return entries

    async def _open(self) -> None:
        """Make the consumer; waits while the broker is away or the stream not there."""
        reported = ""
        while True:
            try:
                await self._create()
                return
            except (nats.errors.Error, OSError, TimeoutError, msgspec.MsgspecError) as error:
                reason = str(error) or type(error).__name__
                if reason != reported:  # said once: it may be a restart, or a permission that is missing
                    _log.warning("log_reader_waits", error=reason, filters=self._filters[:4], start=self._next)
                    reported = reason
                await self._close()
                await asyncio.sleep(limits.RECONNECT_WAIT)

    async def _create(self) -> None:
        inbox = self._nc.new_inbox()
        self._consumer = f"reader-{uuid.uuid4().hex}"
        self._delivered = 0
        self._flow_reply = ""
        self._subscription = await broker.subscribe(self._nc, inbox, self._receiver(self._consumer))
        config: dict[str, object] = {
            "name": self._consumer,
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(limits.READER_HEARTBEAT * 1e9),
            "inactive_threshold": int(30e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        if self._latest:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, self._next)}
        name = self._consumer
        if len(self._filters) == 1:
            # named in the request's subject as well, so that credentials can allow this filter and no other
            name += f".{self._filters[0]}"
            config["filter_subject"] = self._filters[0]
        else:
            config["filter_subjects"] = self._filters
        answer = await broker.request(
            self._nc,
            f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.{name}",
            msgspec.json.encode({"stream_name": subjects.STREAM, "config": config, "action": "create"}),
            timeout=limits.CONSUMER_TIMEOUT,
        )
        created = msgspec.json.decode(answer.data, type=_Created)
        if created.error is not None:
            raise nats.errors.Error(f"consumer not made: {created.error}")
        self.pending_at_start = created.num_pending
        self._heard = asyncio.get_running_loop().time()

    async def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
            if self._removes:
                await self._nc.publish(f"$JS.API.CONSUMER.DELETE.{subjects.STREAM}.{self._consumer}", b"")
        except (nats.errors.Error, ValueError) as error:
            _log.debug("log_reader_closed", error=str(error))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        reconnects = self._opened_at
        while True:
            try:
                # a cut is noticed at the next look; a gap at once
                async with asyncio.timeout(limits.CUT_POLL):
                    await self._reset.wait()
            except TimeoutError:
                if not self._nc.is_connected and not self._nc.is_closed:
                    continue  # nothing can be made before it is back, and then it counts as a reconnect
                silent = loop.time() - self._heard > 3 * limits.READER_HEARTBEAT
                if not silent and self._nc.stats["reconnects"] == reconnects:
                    continue
            self._reset.clear()
            reconnects = self._nc.stats["reconnects"]
            await self._close()
            await self._open()

    def _receiver(self, consumer: str) -> Callable[[Msg], Awaitable[None]]:
        loop = asyncio.get_running_loop()

        async def receive(message: Msg) -> None:
            if consumer != self._consumer:
                return
            self._heard = loop.time()
            if message.headers and message.headers.get("Status") == "100":
                await self._control(message)
                return
            # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>, or with
            # <domain>.<account hash> before the stream and a token behind
            tokens = message.reply.split(".")
            at = 4 if len(tokens) == 9 else 6
            seq, delivered = int(tokens[at + 1]), int(tokens[at + 2])
            if delivered != self._delivered + 1:
                self._consumer = ""
                self._reset.set()
                return
            self._delivered = delivered
            self._next = seq + 1
            self._latest = False  # what comes after an interruption is everything behind this
            self._buffer.append(Entry(seq, message.subject, message.data, int(tokens[at + 4])))
            self._bytes += len(message.data) + limits.READER_ENTRY_BYTES
            self._filled.set()

        return receive

    async def _control(self, message: Msg) -> None:
        assert message.headers
        if message.reply:  # flow control: answered when there is room
            if self._bytes < limits.READER_BUFFER_BYTES:
                await self._publish(message.reply)
            else:
                self._flow_reply = message.reply
        elif int(message.headers.get("Nats-Last-Consumer", self._delivered)) != self._delivered:
            self._consumer = ""
            self._reset.set()
        elif stalled := message.headers.get("Nats-Consumer-Stalled"):
            # a heartbeat that names the flow control message it waits for: our answer was lost, or is held back
            if self._bytes < limits.READER_BUFFER_BYTES:
                await self._publish(stalled)
            else:
                self._flow_reply = stalled

    async def _publish(self, subject: str) -> None:
        try:
            await self._nc.publish(subject, b"")
        except nats.errors.Error as error:
            _log.debug("flow_control_not_sent", error=str(error))
