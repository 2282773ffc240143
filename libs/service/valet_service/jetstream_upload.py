"""Sending an object's content into JetStream: in order, a window of messages at once, each of them acknowledged."""

# nats-py leaves its options untyped.
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from valet_service import broker, limits
from valet_service.errors import ObjectStoreUnavailable
from valet_service.object_store import Measured


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    description: str = ""


class _Ack(msgspec.Struct, frozen=True, kw_only=True):
    error: _Problem | None = None


async def upload(nc: Client, subject: str, measured: Measured) -> int:
    """Publish the content on a subject of its own; how many messages it has become.

    Raises `ObjectStoreUnavailable`, and whatever the content's source raises. Then the subject may hold a part of it,
    and nothing more is on its way.
    """
    return await _Upload(nc, subject).run(measured)


class _Upload:
    def __init__(self, nc: Client, subject: str) -> None:
        self._nc = nc
        self._subject = subject
        self._sent = 0
        self._stored = 0
        self._refusal = ""
        self._heard = asyncio.Event()

    async def run(self, measured: Measured) -> int:
        inbox = self._nc.new_inbox()
        subscription = await broker.subscribe(self._nc, inbox, self._receive)
        reconnects = self._nc.stats["reconnects"]
        try:
            async for chunk in _evenly(measured):
                await self._until_open(limits.OBJECT_WINDOW - 1, reconnects)
                await self._nc.publish(self._subject, chunk, reply=inbox)
                self._sent += 1
            await self._until_open(0, reconnects)
        except (nats.errors.Error, OSError) as error:
            raise ObjectStoreUnavailable(f"an object could not be stored: {broker.words(error)}") from error
        except BaseException:
            # the server removes at once and stores a moment later: what is on its way must not arrive after the removal
            with contextlib.suppress(ObjectStoreUnavailable):
                await self._until_open(0, reconnects)
            raise
        finally:
            if not self._nc.is_closed:
                await subscription.unsubscribe()
        return self._sent

    async def _until_open(self, most: int, reconnects: int) -> None:
        """Wait until at most so many chunks are unanswered."""
        deadline = time.monotonic() + limits.OBJECT_TIMEOUT
        while not self._refusal and self._sent - self._stored > most:
            if self._nc.stats["reconnects"] != reconnects or not self._nc.is_connected:
                raise ObjectStoreUnavailable("the connection to the broker was cut while an object was stored")
            if time.monotonic() > deadline:
                raise ObjectStoreUnavailable("the broker does not acknowledge an object")
            self._heard.clear()
            try:
                async with asyncio.timeout(limits.CUT_POLL):
                    await self._heard.wait()
            except TimeoutError:
                continue
        if self._refusal:
            raise ObjectStoreUnavailable(f"the broker does not store an object: {self._refusal}")

    async def _receive(self, message: Msg) -> None:
        try:
            problem = msgspec.json.decode(message.data, type=_Ack).error
        except msgspec.MsgspecError:
            problem = _Problem(description="there is no bucket for objects")  # nobody listens on the subject
        if problem is None:
            self._stored += 1
        else:
            self._refusal = problem.description
        self._heard.set()


async def _evenly(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of one size, the last one shorter."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= limits.OBJECT_CHUNK_BYTES:
            yield bytes(memoryview(held)[: limits.OBJECT_CHUNK_BYTES])
            del held[: limits.OBJECT_CHUNK_BYTES]
    if held:
        yield bytes(held)
