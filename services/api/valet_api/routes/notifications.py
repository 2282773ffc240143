"""What happened in sessions one does not look at. The event bus keeps it; here it is asked for."""

from typing import Annotated

from litestar import Router, get, post
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import BadRequest
from valet_protocol.requests import ListNotifications, MarkNotificationsRead, NotificationPage, NotificationsRead
from valet_service import rpc

from valet_api import limits
from valet_api.auth import signed_in
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, Seen, json_only, text
from valet_api.routes.sessions import Asking


@get("/", operation_id="listNotifications", summary="List your notifications", responses=responses(400))
async def list_notifications(
    request: Asking,
    nc: Client,
    unread: Annotated[bool, Parameter(description="Only those not read yet.")] = False,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_NOTIFICATIONS)] = 50,
    before: Annotated[int | None, Parameter(ge=0, lt=1 << 53, description="`next` of the page before.")] = None,
) -> NotificationPage:
    """Newest first, a page at a time: questions that wait, turns that ended, sessions one was let into."""
    query = ListNotifications(user=request.user.user, limit=limit, before=before, unread=unread)
    return await rpc.call(nc, subjects.service("event-bus", query.method), query, NotificationPage)


@post(
    "/read",
    operation_id="markNotificationsRead",
    summary="Mark notifications as read",
    guards=[json_only],
    opt={"repeatable": True},
    responses=responses(400, 413, 415, 422),
    status_code=200,
)
async def mark_read(
    request: Asking,
    nc: Client,
    data: Annotated[
        Seen,
        Body(
            examples=[
                Example(summary="All of them", value={"all": True}),
                Example(summary="One", value={"ids": ["01K9XQ5V7R8B3T6D2M4N0P1S9Z"]}),
            ]
        ),
    ],
    idempotency_key: IdempotencyKey = None,
) -> NotificationsRead:
    """Ids that are not yours are passed over."""
    if (data.ids is None) != data.all:
        raise BadRequest("nothing_named", 'Send either "ids": ["…"], the notifications that were read, or "all": true.')
    command = MarkNotificationsRead(
        user=request.user.user, ids=[text(one, "ids") for one in data.ids or []], all=data.all
    )
    return await rpc.call(nc, subjects.service("event-bus", command.method), command, NotificationsRead)


router = Router(
    "/api/notifications", guards=[signed_in], route_handlers=[list_notifications, mark_read], tags=["people"]
)
