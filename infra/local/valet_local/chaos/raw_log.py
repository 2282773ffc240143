"""The raw log, read with a subscriber's credentials as docs/subscribe.md says: during the run, and at its end."""

# nats-py leaves its options untyped.
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from valet_service import broker

from valet_local.chaos import limits
from valet_local.chaos.errors import ChaosFailed
from valet_local.chaos.records import Stored
from valet_local.state import State

_STREAM = "SESSIONS"
_EVERYTHING = "session.>"


class _Envelope(msgspec.Struct):
    id: str
    turn: str | None = None
    epoch: int | None = None
    data: dict[str, object] = {}


_envelope = msgspec.json.Decoder(_Envelope)


class Tap:
    """Hears every event soon after it was stored, and remembers the deltas. Best effort: the broker is killed, too."""

    def __init__(self, state: State, hear: Callable[[Stored], None]) -> None:
        self._state = state
        self._hear = hear
        self._after = 0
        self.deltas: list[Stored] = []

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            with contextlib.suppress(OSError, nats.errors.Error, nats.js.errors.Error):
                await self._listen()
            await asyncio.sleep(limits.POLL)

    async def _listen(self) -> None:
        nc = await _connect(self._state)
        try:
            messages = await _subscribe(nc, self._after + 1)
            while True:
                stored = _stored(await messages.next_msg(timeout=limits.TAP_SILENCE))
                if stored.seq > self._after:
                    self._after = stored.seq
                    if stored.type.startswith("delta."):
                        self.deltas.append(stored)
                    self._hear(stored)
        finally:
            await broker.close(nc)


async def read_all(state: State) -> list[Stored]:
    """Everything that is in the log now. Raises `ChaosFailed`."""
    nc = await _connect(state)
    try:
        found: list[Stored] = []
        deadline = time.monotonic() + limits.READ_LOG
        messages = await _subscribe(nc, 1)
        pending = 1
        while pending:
            try:
                message = await messages.next_msg(timeout=max(0.01, deadline - time.monotonic()))
            except nats.errors.TimeoutError:
                raise ChaosFailed(f"the log was not read within {limits.READ_LOG:g} s; {pending} are left") from None
            found.append(_stored(message))
            pending = message.metadata.num_pending
        return found
    finally:
        await broker.close(nc)


async def _connect(state: State) -> Client:
    return await nats.connect(
        state.nats_url, user_credentials=state.nats_creds, allow_reconnect=False, connect_timeout=2, error_cb=_quiet
    )


async def _quiet(_: Exception) -> None:
    """The broker is killed on purpose."""


async def _subscribe(nc: Client, start: int) -> JetStreamContext.PushSubscription:
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=start, idle_heartbeat=1)
    return await nc.jetstream(timeout=5).subscribe(
        _EVERYTHING, stream=_STREAM, ordered_consumer=True, config=config, pending_msgs_limit=-1, pending_bytes_limit=-1
    )


def _stored(message: Msg) -> Stored:
    envelope = _envelope.decode(message.data)
    tokens = message.subject.split(".")
    return Stored(
        seq=message.metadata.sequence.stream,
        session_id=tokens[2],
        id=envelope.id,
        type=f"{tokens[3]}.{tokens[4]}",
        turn=envelope.turn,
        epoch=envelope.epoch,
        data=envelope.data,
    )
