"""Questions to the broker about the log: its ends, and a page of a session's stored events.

A page is a batched direct get: no consumer is made for it (0.3 ms against 3.5 ms measured), it says itself where it
ended, and asking again from the next sequence is all that a cut connection costs. A push consumer would wait for
ever for events that are purged while it reads, as deltas are.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects
from valet_protocol.errors import BadEvent
from valet_service import limits as service_limits
from valet_service import logs

from valet_event_bus import limits
from valet_event_bus.frames import Line, line

_log = logs.get(__name__)


class _State(msgspec.Struct):
    first_seq: int
    last_seq: int


class _Info(msgspec.Struct):
    state: _State | None = None
    error: dict[str, object] | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some consecutive events of a session."""

    lines: Sequence[Line]
    cursor: int
    """Sequence up to which it reaches."""
    last: bool
    """Whether there was nothing behind them in the range asked for."""


async def ends(nc: Client) -> tuple[int, int]:
    """First and last sequence of the log. Waits while the broker is away."""
    while True:
        try:
            answer = await nc.request(
                f"$JS.API.STREAM.INFO.{subjects.STREAM}", b"", timeout=service_limits.CONNECT_TIMEOUT
            )
            info = msgspec.json.decode(answer.data, type=_Info)
            if info.state is not None:
                return info.state.first_seq, info.state.last_seq
            _log.warning("stream_info_refused", error=info.error)
        except nats.errors.Error as error:
            _log.debug("broker_away", error=str(error))
        await asyncio.sleep(limits.RETRY_WAIT)


async def last_seq(nc: Client) -> int:
    """Sequence of the last event of the log. Waits while the broker is away."""
    return (await ends(nc))[1]


async def next_seq(nc: Client, after: int) -> int | None:
    """Sequence of the first event that is still stored above `after`; None if there is none. Waits for the broker."""
    request = msgspec.json.encode({"seq": after + 1, "next_by_subj": "session.>"})
    while True:
        try:
            answer = await nc.request(
                f"$JS.API.DIRECT.GET.{subjects.STREAM}", request, timeout=service_limits.CONNECT_TIMEOUT
            )
        except nats.errors.Error as error:
            _log.debug("broker_away", error=str(error))
            await asyncio.sleep(limits.RETRY_WAIT)
            continue
        seq = (answer.headers or {}).get("Nats-Sequence")
        return int(seq) if seq else None


async def page(nc: Client, session_id: str, after: int, mark: int) -> Page:
    """The next stored events of a session above `after` and not above `mark`. Waits while the broker is away."""
    while True:
        messages = await _ask(nc, session_id, after)
        if messages is not None:
            break
        await asyncio.sleep(limits.RETRY_WAIT)
    lines: list[Line] = []
    cursor = after
    for message in messages:
        headers = message.headers or {}
        if "Status" in headers:  # 204 end of batch, 404 none at all
            return Page(lines=lines, cursor=cursor, last=headers.get("Nats-Num-Pending", "0") == "0")
        seq, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
        if seq > mark:
            break
        cursor = seq
        try:
            lines.append(line(seq, subject, message.data))
        except BadEvent as error:
            _log.warning("not_an_event", seq=seq, subject=subject, error=str(error))
    return Page(lines=lines, cursor=mark, last=True)


async def _ask(nc: Client, session_id: str, after: int) -> list[Msg] | None:
    """The messages of one batch with the closing one last; None when the answer was lost."""
    messages: list[Msg] = []
    done = asyncio.Event()

    async def receive(message: Msg) -> None:
        messages.append(message)
        if message.headers and "Status" in message.headers:
            done.set()

    inbox = nc.new_inbox()
    request = msgspec.json.encode(
        {
            "seq": after + 1,
            "batch": limits.HISTORY_EVENTS,
            "max_bytes": limits.HISTORY_BYTES,
            "next_by_subj": subjects.session(session_id),
        }
    )
    reconnects = nc.stats["reconnects"]
    loop = asyncio.get_running_loop()
    until = loop.time() + limits.HISTORY_ANSWER
    try:
        subscription = await nc.subscribe(inbox, cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1)
        try:
            await nc.publish(f"$JS.API.DIRECT.GET.{subjects.STREAM}", request, reply=inbox)
            while loop.time() < until and nc.stats["reconnects"] == reconnects:
                try:
                    await asyncio.wait_for(done.wait(), limits.HISTORY_LOOK)
                    break
                except TimeoutError:
                    continue
        finally:
            await subscription.unsubscribe()
    except nats.errors.Error as error:
        _log.debug("history_waits_for_broker", error=str(error))
        return None
    return messages if _whole(messages) else None


def _whole(messages: Sequence[Msg]) -> bool:
    """Whether a batch has its end and no gap: every message names the sequence of the one before it."""
    before: str | None = None
    for message in messages:
        headers = message.headers or {}
        status = headers.get("Status")
        if status is not None:
            return status in ("204", "404")
        if before is not None and headers["Nats-Last-Sequence"] != before:
            return False
        before = headers["Nats-Sequence"]
    return False
