"""What is done in the sandbox between turns: going back, and commands that have a result."""

import asyncio
from typing import Annotated, Literal

from litestar import Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import Unavailable
from valet_protocol.ids import derived_id, new_id
from valet_protocol.requests import CommandView, GetCommand, RequestCommand

from valet_api import limits
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, NewCommand, Revert, SessionId, json_only, text
from valet_api.routes.sessions import Asking

Wait = Annotated[
    float,
    Parameter(
        ge=0, le=limits.COMMAND_WAIT_MOST, description="Seconds to hold the reply until the command has its result."
    ),
]

_RESPONSES = {
    **responses(400, 403, 404, 409, 413, 415, 422, 429),
    200: ResponseSpec(CommandView, description="It is over: `status` says how it went.", generate_examples=False),
}


async def _ask(ledger: Ledger, command: RequestCommand, wait: float) -> Response[CommandView]:
    """Have it done, and wait for its end: 200 with it, 202 without."""
    view = await ledger.ask(command, CommandView)
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    pause = limits.COMMAND_LOOK
    query = GetCommand(session_id=command.session_id, user=command.user, request_id=command.request_id)
    while view.status == "requested" and (left := until - loop.time()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, limits.COMMAND_LOOK_LONGEST)
        try:
            view = await ledger.ask(query, CommandView)
        except Unavailable:  # it is in the log all the same
            break
    return Response(view, status_code=202 if view.status == "requested" else 200)


def _request_id(command: str, session_id: str, user: str, key: str | None) -> str:
    return derived_id("command", command, session_id, user, key) if key else new_id()


@post(
    "/revert",
    operation_id="revert",
    summary="Go back to before a message",
    opt={"repeatable": True},
    guards=[json_only],
    responses=_RESPONSES,
    status_code=202,
)
async def revert(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    data: Annotated[Revert, Body(examples=[Example(summary="A message", value={"message_id": "msg_0198f2c4"})])],
    wait: Wait = limits.COMMAND_WAIT,
    idempotency_key: IdempotencyKey = None,
) -> Response[CommandView]:
    """The message and all later ones of its conversation no longer count, and the files are as they were before it.

    Possible between turns; until the next turn `unrevert` takes it back.
    """
    user = request.user.user
    command = RequestCommand(
        session_id=session_id,
        user=user,
        request_id=_request_id("revert", session_id, user, idempotency_key),
        command="revert",
        message_id=text(data.message_id, "message_id"),
    )
    return await _ask(ledger, command, wait)


@post(
    "/unrevert",
    operation_id="unrevert",
    summary="Take a revert back",
    opt={"repeatable": True},
    responses=_RESPONSES,
    status_code=202,
)
async def unrevert(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    channel: Annotated[
        str | None,
        Parameter(description="The conversation; none: `web:default`.", max_length=limits.CHANNEL_CHARACTERS),
    ] = None,
    wait: Wait = limits.COMMAND_WAIT,
    idempotency_key: IdempotencyKey = None,
) -> Response[CommandView]:
    """What was taken back counts again, files too."""
    user = request.user.user
    command = RequestCommand(
        session_id=session_id,
        user=user,
        request_id=_request_id("unrevert", session_id, user, idempotency_key),
        command="unrevert",
        channel=text(channel, "channel") if channel else "web:default",
    )
    return await _ask(ledger, command, wait)


@post(
    "/commands",
    operation_id="requestCommand",
    summary="Have something done in the sandbox",
    opt={"repeatable": True},
    guards=[json_only],
    responses=_RESPONSES,
    status_code=202,
)
async def request_command(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    data: Annotated[
        NewCommand,
        Body(
            examples=[
                Example(summary="Which slash commands there are", value={"command": "list_commands"}),
                Example(summary="Start afresh", value={"command": "new_conversation", "channel": "web:default"}),
            ]
        ),
    ],
    wait: Wait = 0.0,
    idempotency_key: IdempotencyKey = None,
) -> Response[CommandView]:
    """Possible between turns. Its result comes as an event, here with `wait`, or by `GET …/commands/{request_id}`."""
    user = request.user.user
    name: Literal["new_conversation", "list_commands"] = data.command
    command = RequestCommand(
        session_id=session_id,
        user=user,
        request_id=_request_id(name, session_id, user, idempotency_key),
        command=name,
        channel=data.channel or "web:default",
    )
    return await _ask(ledger, command, wait)


@get(
    "/commands/{request_id:str}",
    operation_id="getCommand",
    summary="Look at a command",
    responses=responses(404),
)
async def get_command(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    request_id: Annotated[str, Parameter(description="As it was given when the command was requested.")],
) -> CommandView:
    """Its status and, once it is over, its result."""
    query = GetCommand(session_id=session_id, user=request.user.user, request_id=text(request_id, "request_id"))
    return await ledger.ask(query, CommandView)


router = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[revert, unrevert, request_command, get_command],
    tags=["commands"],
)
