"""A tool's request, to whichever service answers it."""

import asyncio
import time

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects
from valet_protocol.errors import Problem, TooLarge, Unavailable, from_problem
from valet_protocol.requests import Reply
from valet_protocol.tools import Category, Tool
from valet_service import broker, logs, rpc

from valet_runner.tools import limits

_log = logs.get(__name__)

PARTS: dict[Category, str] = {
    "sessions": "session-ledger",
    "pull_requests": "integrations",
    "memory": "knowledge",
    "workflows": "automation",
    "triggers": "automation",
    "executions": "automation",
    "tasks": "automation",
    "notifications": "event-bus",
    "secrets": "integrations",
    "channels": "session-ledger",
    "parallel": "integrations",
}
"""Which service answers the tools of a category."""


class Platform:
    """Asks the services behind the broker."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self._known: set[str] = set()
        """Tools that were answered before: whoever answers them is there, or coming back."""

    async def call(self, request: Tool) -> Reply:
        """Ask and wait for the answer, sent again while none comes; every tool is idempotent by its `request_id`.

        Raises the `Refused` that came back; `Unavailable` where no service answers this tool, or not in time.
        """
        subject = subjects.sandbox_request(request.session_id, request.name)
        message = await self._ask(subject, request)
        self._known.add(request.name)
        try:
            if message.headers and rpc.PROBLEM_HEADER in message.headers:
                raise from_problem(msgspec.json.decode(message.data, type=Problem))
            return msgspec.json.decode(message.data, type=request.reply)
        except msgspec.MsgspecError as error:
            _log.error("reply_not_understood", subject=subject, error=str(error))
            raise Unavailable(
                "reply_not_understood", "Two parts of the platform are of different versions; people must restart it."
            ) from error

    async def _ask(self, subject: str, request: Tool) -> Msg:
        payload = msgspec.json.encode(request)
        deadline = time.monotonic() + request.timeout
        there = request.name in self._known
        missing_since: float | None = None
        while (left := deadline - time.monotonic()) > 0:
            try:
                wait = min(left, max(1.0, request.timeout / limits.ASK_TRIES))
                return await broker.request(self._nc, subject, payload, timeout=wait)
            except nats.errors.MaxPayloadError as error:
                raise TooLarge("request_too_large", "This is more than one request may carry; send less.") from error
            except nats.errors.NoRespondersError as error:
                now = time.monotonic()
                missing_since = missing_since or now
                if not there and now - missing_since >= limits.MISSING_AFTER:
                    raise Unavailable(
                        "unavailable",
                        f"{_part(request)}, which answers {request.name}, does not run here or does not offer it."
                        " Go on without it, or try again later.",
                    ) from error
            except nats.errors.TimeoutError:
                there = True  # somebody has had the request
            except (
                nats.errors.ConnectionClosedError,
                nats.errors.ConnectionReconnectingError,
                nats.errors.OutboundBufferLimitError,
            ):
                missing_since = None  # the broker is away, which says nothing of the service
            await asyncio.sleep(min(limits.ASK_AGAIN_WAIT, max(0.0, left)))
        raise Unavailable("no_answer", f"{_part(request)} did not answer within {request.timeout:.0f} s; try again.")


def _part(request: Tool) -> str:
    return f"The platform's {PARTS[request.category]} service"
