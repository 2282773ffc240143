"""Following sessions live. Here it is decided who may; the bytes are the event bus's."""

from typing import Annotated, Any

from litestar import Response, Router, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, Parameter
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send
from nats.aio.client import Client
from valet_protocol.errors import BadRequest, Unavailable
from valet_protocol.requests import GetSession, HandOver, SessionView

from valet_api import connection
from valet_api.auth import signed_in, signed_in_by_query
from valet_api.errors import NoEventBus
from valet_api.hand_over import Door
from valet_api.ledger import Ledger
from valet_api.log_end import last_seq
from valet_api.problems import responses
from valet_api.routes.bodies import SessionId
from valet_api.routes.sessions import Asking


class _Nothing(ASGIResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        return


class HandedOver(Response[None]):
    """No response of ours: the connection belongs to the event bus now."""

    def __init__(self) -> None:
        super().__init__(None)

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:
        return _Nothing()


async def _give(door: Door, request: Asking, message: HandOver) -> HandedOver:
    try:
        await door.hand_over(connection.of(request.scope), message)
    except NoEventBus as error:
        raise Unavailable("event_bus_unavailable", "Live events are not served at the moment; try again.") from error
    return HandedOver()


@get(
    "/api/sessions/{session_id:str}/events",
    guards=[signed_in],
    operation_id="followSession",
    summary="Follow a session (Server-Sent Events)",
    responses={
        **responses(400, 404),
        200: ResponseSpec(
            str,
            description="`id:` is the sequence, `event:` the event's short type, `data:` the CloudEvent. After the "
            "history comes one frame `event: synced` without id; then what happens, as it happens.",
            media_type="text/event-stream",
            generate_examples=False,
        ),
    },
    tags=["live"],
)
async def follow_session(
    request: Asking,
    ledger: Ledger,
    door: Door,
    nc: Client,
    session_id: SessionId,
    after: Annotated[
        str,
        Parameter(description="Sequence of the last event already seen; 0 for everything."),
    ] = "0",
    last_event_id: Annotated[
        str | None,
        HeaderParameter(name="Last-Event-ID", description="Sent by browsers that reconnect; goes before `after`."),
    ] = None,
) -> HandedOver:
    """Everything above the cursor, then live. May be cut at any moment and resumed from the last `id:`."""
    user = request.user.user
    view = await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)
    cursor = checked_cursor(last_event_id if last_event_id is not None else after)
    await within_log(nc, cursor, view.seq, "bad_cursor")
    person = request.user
    message = HandOver(kind="sse", user=person.user, name=person.name, session_id=session_id, after=cursor)
    return await _give(door, request, message)


@get(
    "/ws",
    guards=[signed_in_by_query],
    operation_id="webSocket",
    summary="Follow many sessions (WebSocket)",
    responses={
        **responses(400),
        200: ResponseSpec(None, description="Never: see 101.", generate_examples=False),
        101: ResponseSpec(
            None,
            description='Send `{"type":"subscribe","session_id":…,"after":…}`, `{"type":"unsubscribe","session_id":…}` '
            'or `{"type":"ping"}`; get `events`, `synced`, `error` and `pong`.',
            generate_examples=False,
        ),
    },
    tags=["live"],
)
async def web_socket(
    request: Asking,
    door: Door,
    token: Annotated[
        str | None,
        Parameter(description="For browsers, which cannot send an Authorization header here."),
    ] = None,
) -> HandedOver:
    """One connection, any number of sessions, each with its own cursor."""
    key = request.headers.get("sec-websocket-key", "")
    upgrades = request.headers.get("upgrade", "").lower() == "websocket"
    if not upgrades or not key or request.headers.get("sec-websocket-version") != "13":
        raise BadRequest("not_a_websocket", "Connect here with a WebSocket client (RFC 6455, version 13).")
    person = request.user
    return await _give(door, request, HandOver(kind="ws", user=person.user, name=person.name, ws_key=key))


async def within_log(nc: Client, seq: int, known: int, code: str) -> None:
    """Whether there can be an event at a sequence; `known` is one that there is. All sessions share one log: a sequence
    of another one is fine. Raises `BadRequest`, `Unavailable`."""
    if seq > known and seq > (end := await last_seq(nc)):
        raise BadRequest(code, f"{seq} is beyond the end of the log, which is {end}; use a sequence you were given.")


def checked_cursor(text: str) -> int:
    """A sequence. Raises `BadRequest` (`bad_cursor`)."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise BadRequest("bad_cursor", f"{text[:40]!r} is not a cursor; use the `id:` of the last event seen, or 0.")


router = Router("/", route_handlers=[follow_session, web_socket])
