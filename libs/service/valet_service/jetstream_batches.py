"""Reading many messages of a stream with few requests (NATS ADR-31)."""

# nats-py leaves its options untyped.
# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import AsyncIterator

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from valet_service import broker, limits
from valet_service.errors import ObjectStoreUnavailable


async def messages(nc: Client, stream: str, subject: str, *, batch: int) -> AsyncIterator[bytes]:
    """The content of every message on a subject (with wildcards), in order; `batch` of them for one request.

    Raises `ObjectStoreUnavailable` when not all of them could be read.
    """
    inbox = nc.new_inbox()
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await broker.subscribe(nc, inbox, heard.put)
    try:
        after, left = 0, 1
        while left:
            body = msgspec.json.encode({"seq": after + 1, "batch": batch, "next_by_subj": subject})
            await nc.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
            while True:
                async with asyncio.timeout(limits.OBJECT_TIMEOUT):
                    message = await heard.get()
                headers = message.headers or {}
                if "Nats-Sequence" not in headers:
                    # 204 ends a batch and says how much there is behind it; 404 is none at all
                    left = int(headers.get("Nats-Num-Pending", 0)) if headers.get("Status") == "204" else 0
                    if headers.get("Status") not in ("204", "404"):
                        raise ObjectStoreUnavailable(f"the broker does not list objects: {dict(headers)}")
                    break
                after = int(headers["Nats-Sequence"])
                yield message.data
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise ObjectStoreUnavailable(f"the broker does not list objects: {broker.words(error)}") from error
    finally:
        if not nc.is_closed:
            await subscription.unsubscribe()
