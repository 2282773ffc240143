"""Acting on events: a durable pull consumer whose every message is handled and then acknowledged.

What is not acknowledged is delivered again after any crash, so handlers are idempotent by the event's id. While this
process lives it tells the broker that it is still at what it holds, so that a slow handler gets nothing twice and
what a crashed one held comes back soon.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects

from valet_service import broker, limits, logs

_log = logs.get(__name__)

_PROGRESS = b"+WPI"

_EXISTS = 10148
"""The broker's code for a consumer that is there and is configured otherwise."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to act on."""

    seq: int
    subject: str
    payload: bytes
    attempt: int
    """1 on first delivery."""
    message: Msg

    async def acknowledge(self) -> None:
        """It is done; never deliver it again."""
        await self._answer(b"+ACK")

    async def progress(self) -> None:
        """Still at it; do not deliver it again yet. `read_durable` says so by itself while a handler runs."""
        await self._answer(_PROGRESS)

    async def again(self, after: float) -> None:
        """Deliver it again after some seconds."""
        await self._answer(_again(after))

    async def _answer(self, word: bytes) -> None:
        try:
            # not Msg.ack and its like: they refuse a second word about the same message
            await self.message._client.publish(self.message.reply, word)  # pyright: ignore[reportPrivateUsage]
        except nats.errors.Error as error:
            # unacknowledged means delivered again, which handlers expect
            _log.info("acknowledgement_not_sent", seq=self.seq, error=str(error))


class _Answer(msgspec.Struct, kw_only=True):
    error: dict[str, object] | None = None


def _again(after: float) -> bytes:
    return b'-NAK {"delay":%d}' % int(after * 1e9)


async def ensure_consumer(
    nc: Client,
    name: str,
    filters: list[str],
    *,
    max_ack_pending: int = 1000,
    start: int | None = None,
    keep: bool = False,
) -> None:
    """Make a durable consumer if it is not there; the same configuration again is fine.

    `start`: the first sequence it delivers; none for the beginning of the log. `keep`: one that is there stays as it
    is, whatever its configuration.

    Raises nats-py's errors: `NoRespondersError` or `TimeoutError` while the broker restarts, `Error` with the
    broker's words when it refuses.
    """
    config: dict[str, object] = {
        "durable_name": name,
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": int(limits.ACK_WAIT * 1e9),
        "filter_subjects": filters,
        "deliver_policy": "by_start_sequence" if start else "all",
        "max_ack_pending": max_ack_pending,
        "replay_policy": "instant",
    }
    if start:
        config["opt_start_seq"] = start
    answer = await nc.request(
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.{name}",
        msgspec.json.encode({"stream_name": subjects.STREAM, "config": config, "action": "create" if keep else ""}),
        timeout=limits.CONSUMER_TIMEOUT,
    )
    error = msgspec.json.decode(answer.data, type=_Answer).error
    if error is not None and not (keep and error.get("err_code") == _EXISTS):
        raise nats.errors.Error(f"consumer {name} not made: {error}")


async def delete_consumer(nc: Client, name: str) -> None:
    """Remove a durable consumer; none of that name is fine."""
    await nc.request(f"$JS.API.CONSUMER.DELETE.{subjects.STREAM}.{name}", b"", timeout=limits.REQUEST_TIMEOUT)


async def read_durable(nc: Client, name: str, handle: Callable[[Delivery], Awaitable[None]]) -> None:
    """Pull for ever and hand every message to `handle`, one after the other. Ends only by cancellation.

    `handle` acknowledges (or asks for redelivery) itself. An exception of it is logged and the message is asked for
    again after a second. A waiting pull is renewed as soon as the connection is back. When cancelled, what was
    fetched and not handled is given back at once.
    """
    await _DurableReader(nc, name, handle).run()


class _DurableReader:
    def __init__(self, nc: Client, name: str, handle: Callable[[Delivery], Awaitable[None]]) -> None:
        self._nc = nc
        self._name = name
        self._handle = handle
        self._held: deque[Msg] = deque()
        """Fetched, oldest first; the one being handled stays until it has been."""
        self._arrived = asyncio.Event()
        self._pull = 0
        self._ended = ""
        """Status with which the broker ended the present pull, once it has."""

    async def run(self) -> None:
        inbox = self._nc.new_inbox()
        subscription = await broker.subscribe(self._nc, f"{inbox}.*", self._receive)
        progress = asyncio.create_task(self._report_progress())
        reported = ""
        try:
            while True:
                await self._one_pull(inbox)
                if self._ended in ("", "404", "408"):  # fulfilled, or nothing there for as long as it waited
                    reported = ""
                    continue
                if self._ended != reported:  # said once: no consumer (yet), the broker is stopping, …
                    _log.warning("pull_ended", consumer=self._name, status=self._ended)
                    reported = self._ended
                await asyncio.sleep(limits.RECONNECT_WAIT)
        finally:
            progress.cancel()
            if not self._nc.is_closed:
                await subscription.unsubscribe()
            await self._say(_again(0), list(self._held))

    async def _one_pull(self, inbox: str) -> None:
        """Ask for a batch and handle what comes, until it is complete, ended by the broker, or lost in a cut."""
        self._pull += 1
        self._ended = ""
        reconnects = self._nc.stats["reconnects"]
        request = msgspec.json.encode({"batch": limits.PULL_BATCH, "expires": int(limits.PULL_EXPIRES * 1e9)})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{self._name}"
        try:
            await self._nc.publish(subject, request, reply=f"{inbox}.{self._pull}")
        except nats.errors.Error as error:
            self._ended = type(error).__name__
            return
        loop = asyncio.get_running_loop()
        handled, until = 0, loop.time() + limits.PULL_EXPIRES + 1.0
        while True:
            while self._held:
                await self._handle_one(self._held[0])
                self._held.popleft()
                handled += 1
            if self._ended or handled >= limits.PULL_BATCH or loop.time() > until:
                return
            if self._nc.stats["reconnects"] != reconnects:  # the broker forgot the pull
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(limits.CUT_POLL):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is None:
            self._held.append(message)
        elif message.subject.endswith(f".{self._pull}"):  # of an earlier pull it means nothing any more
            self._ended = status
        self._arrived.set()

    async def _report_progress(self) -> None:
        while True:
            held = list(self._held)
            await asyncio.sleep(limits.ACK_WAIT / 3)
            old = [message for message in held if any(message is still for still in self._held)]
            await self._say(_PROGRESS, old)

    async def _say(self, word: bytes, messages: list[Msg]) -> None:
        try:
            for message in messages:
                await self._nc.publish(message.reply, word)
        except nats.errors.Error as error:
            _log.debug("broker_not_told", consumer=self._name, word=word.decode(), error=str(error))

    async def _handle_one(self, message: Msg) -> None:
        tokens = message.reply.split(".")
        at = 4 if len(tokens) == 9 else 6
        delivery = Delivery(
            seq=int(tokens[at + 1]),
            subject=message.subject,
            payload=message.data,
            attempt=int(tokens[at]),
            message=message,
        )
        try:
            await self._handle(delivery)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the reader; it comes again
            _log.exception("handler_failed", subject=delivery.subject, seq=delivery.seq, error=str(error))
            await delivery.again(limits.HANDLER_RETRY_WAIT)
