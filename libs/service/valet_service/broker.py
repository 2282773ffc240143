"""Connecting to NATS, and the stream that holds the session log."""

# nats-py leaves its keyword options untyped; what this module hands on is typed.
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError
from valet_protocol import subjects

from valet_service import limits, logs
from valet_service.errors import BrokerTooOld
from valet_service.settings import Settings

NEEDED = (2, 12)
"""Oldest NATS server that honours everything Valet asks for."""

_log = logs.get(__name__)


async def connect(
    url: str,
    *,
    name: str,
    creds: str | None = None,
    inbox_prefix: str = "_INBOX",
    reconnect: bool = True,
    reconnected: Callable[[], Awaitable[None]] | None = None,
    disconnected: Callable[[], Awaitable[None]] | None = None,
) -> Client:
    """A connection that reconnects for ever, or — `reconnect=False` — ends at the first cut (see `outbox`).

    Raises `BrokerTooOld` for a server below 2.12, and nats-py's errors when `reconnect` is off and the broker
    cannot be reached.
    """

    said = ""

    async def report(error: Exception) -> None:
        nonlocal said
        text = str(error) or type(error).__name__
        if text != said:  # ten attempts a second fail in the same way while the broker is away
            _log.warning("broker", error=text, connection=name)
        said = text

    async def back() -> None:
        nonlocal said
        said = ""
        _log.info("broker_back", connection=name)
        if reconnected is not None:
            await reconnected()

    async def closed() -> None:
        return None

    nc = await nats.connect(
        url,
        name=name,
        user_credentials=creds,
        inbox_prefix=inbox_prefix,
        allow_reconnect=reconnect,
        max_reconnect_attempts=-1 if reconnect else 0,
        reconnect_time_wait=limits.RECONNECT_WAIT,
        connect_timeout=limits.CONNECT_TIMEOUT,
        ping_interval=20,
        max_outstanding_pings=2,
        error_cb=report,
        closed_cb=closed,
        reconnected_cb=back,
        disconnected_cb=disconnected,
        pending_size=64 << 20,
        flush_timeout=limits.CONNECT_TIMEOUT,
    )
    version = nc.connected_server_version
    if (version.major, version.minor) < NEEDED:
        await close(nc)
        raise BrokerTooOld(str(version), ".".join(map(str, NEEDED)))
    return nc


async def connect_service(settings: Settings, name: str, **options: object) -> Client:
    """`connect` with a service's settings."""
    return await connect(settings.nats_url, name=name, creds=settings.nats_creds, **options)  # type: ignore[arg-type]


async def close(nc: Client, within: float = limits.CONNECT_TIMEOUT) -> None:
    """End a connection, whatever state it is in: one that was cut this moment has nothing left to say."""
    with contextlib.suppress(OSError, TimeoutError, nats.errors.Error):
        await asyncio.wait_for(nc.close(), within)


async def subscribe(
    nc: Client, subject: str, receive: Callable[[Msg], Awaitable[None]], *, queue: str = ""
) -> Subscription:
    """Subscribe without nats-py's own limits on what is pending: past them it drops, and a dropped message is a lost
    one. Who subscribes bounds what is on its way (flow control, batches, a window) and keeps `receive` short."""
    return await nc.subscribe(subject, queue=queue, cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1)


async def request(nc: Client, subject: str, payload: bytes, *, timeout: float) -> Msg:
    """A request that is given up as soon as the connection it went out on is cut: its answer went with it.

    Raises `ConnectionReconnectingError` then, and nats-py's other errors.
    """
    if not nc.is_connected:
        raise nats.errors.ConnectionReconnectingError
    reconnects = nc.stats["reconnects"]
    asking = asyncio.create_task(nc.request(subject, payload, timeout=timeout))
    try:
        while not asking.done():
            await asyncio.wait((asking,), timeout=limits.CUT_POLL)
            if not asking.done() and (nc.stats["reconnects"] != reconnects or not nc.is_connected):
                raise nats.errors.ConnectionReconnectingError
        return asking.result()
    finally:
        asking.cancel()


def words(error: BaseException | None) -> str:
    """What an error says; the name of one that says nothing, as nats-py's often do."""
    return str(error) or type(error).__name__


def stream_config(replicas: int = 1) -> StreamConfig:
    """The stream `SESSIONS`.

    The log is kept without limit in this version: the archive in PostgreSQL is a copy, not yet its successor.
    """
    return StreamConfig(
        name=subjects.STREAM,
        subjects=["session.>"],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        num_replicas=replicas,
        duplicate_window=limits.DUPLICATE_WINDOW,
        max_consumers=100_000,  # the server's own default is 1,000 (measured), one is needed for every session
        allow_direct=True,
        deny_delete=True,
    )


async def ensure_stream(nc: Client, replicas: int = 1) -> None:
    """Make the log's stream if it is not there. Safe to call from every service at once."""
    js = nc.jetstream(timeout=limits.REQUEST_TIMEOUT)
    try:
        await js.stream_info(subjects.STREAM)
    except NotFoundError:
        try:
            await js.add_stream(stream_config(replicas))
        except BadRequestError as error:
            if error.err_code != 10058:  # stream name already in use: somebody was faster
                raise
