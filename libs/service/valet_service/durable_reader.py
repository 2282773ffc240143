"""Acting on events: a durable pull consumer whose every message is handled and then acknowledged.

What is not acknowledged is delivered again after any crash, so handlers are idempotent by the event's id.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects

from valet_service import limits, logs

_log = logs.get(__name__)


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
        """Still at it; do not deliver it again yet."""
        await self._answer(b"+WPI")

    async def again(self, after: float) -> None:
        """Deliver it again after some seconds."""
        await self._answer(b'-NAK {"delay":%d}' % int(after * 1e9))

    async def _answer(self, word: bytes) -> None:
        try:
            await self.message._client.publish(self.message.reply, word)
        except nats.errors.Error as error:
            # unacknowledged means delivered again, which handlers expect
            _log.info("acknowledgement_not_sent", seq=self.seq, error=str(error))


async def ensure_consumer(
    nc: Client, name: str, filters: list[str], *, max_ack_pending: int = 1000, start: int | None = None
) -> None:
    """Make a durable consumer if it is not there; the same configuration again is fine."""
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
        msgspec.json.encode({"stream_name": subjects.STREAM, "config": config}),
        timeout=limits.REQUEST_TIMEOUT,
    )
    error = msgspec.json.decode(answer.data, type=dict).get("error")
    if error is not None:
        raise nats.errors.Error(f"consumer {name} not made: {error}")


async def delete_consumer(nc: Client, name: str) -> None:
    """Remove a durable consumer; none of that name is fine."""
    await nc.request(f"$JS.API.CONSUMER.DELETE.{subjects.STREAM}.{name}", b"", timeout=limits.REQUEST_TIMEOUT)


async def read_durable(nc: Client, name: str, handle: Callable[[Delivery], Awaitable[None]]) -> None:
    """Pull for ever and hand every message to `handle`, one after the other. Ends only by cancellation.

    `handle` acknowledges (or asks for redelivery) itself. An exception of it is logged and the message is asked for
    again after a second. A waiting pull is renewed as soon as the connection is back.
    """
    inbox = nc.new_inbox()
    queue: asyncio.Queue[Msg | None] = asyncio.Queue()

    async def receive(message: Msg) -> None:
        queue.put_nowait(message)

    subscription = await nc.subscribe(inbox, cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1)
    request = msgspec.json.encode({"batch": limits.PULL_BATCH, "expires": int(limits.PULL_EXPIRES * 1e9)})
    loop = asyncio.get_running_loop()
    try:
        while True:
            reconnects = nc.stats["reconnects"]
            try:
                await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{name}", request, reply=inbox)
            except nats.errors.Error as error:
                _log.debug("pull_not_sent", consumer=name, error=str(error))
                await asyncio.sleep(limits.RECONNECT_WAIT)
                continue
            wanted, until = limits.PULL_BATCH, loop.time() + limits.PULL_EXPIRES + 1.0
            while wanted and loop.time() < until and nc.stats["reconnects"] == reconnects:
                try:
                    message = await asyncio.wait_for(queue.get(), 0.25)
                except TimeoutError:
                    continue
                if message is None:
                    continue
                status = message.headers.get("Status") if message.headers else None
                if status is not None:
                    if status not in ("404", "408", "409"):
                        _log.info("pull_ended", consumer=name, status=status)
                    if status in ("503", "409"):  # no consumer (yet), or it is going: do not spin
                        await asyncio.sleep(limits.RECONNECT_WAIT)
                    break
                wanted -= 1
                await _handle(message, handle)
    finally:
        if not nc.is_closed:
            await subscription.unsubscribe()


async def _handle(message: Msg, handle: Callable[[Delivery], Awaitable[None]]) -> None:
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
        await handle(delivery)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - one bad message must not end the reader; it comes again
        _log.exception("handler_failed", subject=delivery.subject, seq=delivery.seq, error=str(error))
        await delivery.again(1.0)
