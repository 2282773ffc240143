"""Requests over NATS: typed struct in, typed struct out, problems as problems."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from valet_protocol.errors import BadRequest, Forbidden, Problem, Refused, TooLarge, Unavailable, from_problem
from valet_protocol.requests import Reply, Request

from valet_service import broker, limits, logs

PROBLEM_HEADER = "Valet-Problem"

_log = logs.get(__name__)
Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Reply)


async def serve(
    nc: Client, subject: str, request: type[Q], handler: Callable[[Q], Awaitable[Reply]], *, queue: str
) -> Subscription:
    """Answer requests on a subject; replicas share them by `queue`. Requests are handled concurrently.

    A `Refused` becomes its problem document. Anything else is logged and answered as 503, so that nobody waits.
    """
    decoder = msgspec.json.Decoder(request)
    tasks: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        try:
            try:
                query = decoder.decode(message.data)
            except msgspec.MsgspecError as error:
                raise BadRequest("malformed_request", str(error)) from error
            _check_sender(message.subject, query)
            # not Msg.respond: it sends the request's own headers back
            await nc.publish(message.reply, msgspec.json.encode(await handler(query)))
        except Refused as refusal:
            await _refuse(nc, message, refusal)
        except nats.errors.MaxPayloadError:
            _log.warning("reply_too_large", subject=message.subject)
            await _refuse(nc, message, TooLarge("reply_too_large", "The answer is too large; ask for fewer items."))
        except Exception as error:  # noqa: BLE001 - whatever it is, the requester must not wait for ever
            _log.exception("request_failed", subject=message.subject, error=str(error))
            await _refuse(nc, message, Unavailable("internal", "Something went wrong here; try again."))

    async def start(message: Msg) -> None:
        task = asyncio.create_task(answer(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return await broker.subscribe(nc, subject, start, queue=queue)


def _check_sender(subject: str, query: Request) -> None:
    """A sandbox may ask about its own session only: its credentials bind the subject, this binds the body to it."""
    tokens = subject.split(".")
    if tokens[:2] == ["rpc", "session"] and tokens[2] != getattr(query, "session_id", tokens[2]):
        raise Forbidden("wrong_session", "A sandbox can ask only about its own session.")


async def _refuse(nc: Client, message: Msg, refusal: Refused) -> None:
    problem = refusal.problem()
    headers = {PROBLEM_HEADER: str(problem.status)}
    try:
        await nc.publish(message.reply, msgspec.json.encode(problem), headers=headers)
    except nats.errors.Error as error:
        _log.warning("reply_not_sent", subject=message.subject, error=str(error))


async def call(
    nc: Client, subject: str, request: Request, reply: type[R], *, timeout: float = limits.REQUEST_TIMEOUT
) -> R:
    """Ask and wait for the answer. Raises the `Refused` that came back.

    While nobody serves the subject (a restart) it asks again until `timeout`; every request is idempotent, so a
    second delivery is harmless. Raises `Unavailable` when the time is up.
    """
    payload = msgspec.json.encode(request)
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Unavailable("unavailable", "A part of the platform does not answer at the moment; try again.")
        try:
            message = await broker.request(nc, subject, payload, timeout=min(left, max(1.0, timeout / 3)))
            break
        except nats.errors.MaxPayloadError as error:
            raise TooLarge("request_too_large", "This is more than one request may carry; send less.") from error
        except (
            nats.errors.NoRespondersError,
            nats.errors.TimeoutError,
            nats.errors.ConnectionClosedError,
            nats.errors.ConnectionReconnectingError,
            nats.errors.OutboundBufferLimitError,
        ):
            await asyncio.sleep(min(limits.REQUEST_RETRY_WAIT, max(0.0, left)))
    try:
        if message.headers and PROBLEM_HEADER in message.headers:
            raise from_problem(msgspec.json.decode(message.data, type=Problem))
        return msgspec.json.decode(message.data, type=reply)
    except msgspec.MsgspecError as error:
        _log.error("reply_not_understood", subject=subject, error=str(error))
        raise Unavailable(
            "reply_not_understood", "Two parts of the platform are of different versions; restart it."
        ) from error
