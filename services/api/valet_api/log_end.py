"""Where the log ends."""

import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Unavailable
from valet_service import limits


class _State(msgspec.Struct):
    last_seq: int


class _Info(msgspec.Struct):
    state: _State | None = None


async def last_seq(nc: Client) -> int:
    """Sequence of the log's last event. Raises `Unavailable` while the broker is away."""
    try:
        answer = await nc.request(f"$JS.API.STREAM.INFO.{subjects.STREAM}", b"", timeout=limits.REQUEST_TIMEOUT)
    except nats.errors.Error as error:
        raise Unavailable("unavailable", "The log cannot be read at the moment; try again.") from error
    state = msgspec.json.decode(answer.data, type=_Info).state
    return state.last_seq if state else 0
