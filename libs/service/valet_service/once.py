"""Requests of sandboxes that change something: each has one effect, however often it arrives."""

# asyncpg carries no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
import msgspec
from valet_protocol.errors import BadRequest
from valet_protocol.requests import Reply

from valet_service import limits

R = TypeVar("R", bound=Reply)
Connection = asyncpg.pool.PoolConnectionProxy


async def once(
    connection: Connection,
    schema: str,
    session_id: str,
    request_id: str,
    reply: type[R],
    act: Callable[[], Awaitable[R]],
    now_ms: int,
) -> R:
    """What `act` answers; a second time, also while the first is under way, what it answered the first time.

    Needs an open transaction and the schema's table `answered (session_id, request_id, reply, answered_ms)` with its
    primary key over the first two. What `act` refuses is not remembered: nothing of it is stored. Raises `BadRequest`
    for a request without an id that could be told from others.
    """
    if not 0 < len(request_id) <= limits.REQUEST_ID_CHARACTERS or "\0" in request_id:
        raise BadRequest("no_request_id", "Send a `request_id` of its own with each request.")
    # waits for whoever has the same request in hand, and learns how that ended
    first = await connection.fetchval(
        f"INSERT INTO {schema}.answered (session_id, request_id, reply, answered_ms) VALUES ($1, $2, '', $3)"
        " ON CONFLICT DO NOTHING RETURNING true",
        session_id,
        request_id,
        now_ms,
    )
    one = "WHERE session_id = $1 AND request_id = $2"
    if not first:
        text = await connection.fetchval(f"SELECT reply FROM {schema}.answered {one}", session_id, request_id)
        return msgspec.json.decode(text, type=reply)
    answer = await act()
    text = msgspec.json.encode(answer).decode()
    await connection.execute(f"UPDATE {schema}.answered SET reply = $3 {one}", session_id, request_id, text)
    return answer
