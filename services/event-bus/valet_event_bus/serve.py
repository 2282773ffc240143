"""Requests about notifications, asked by api on behalf of a user."""

import asyncio

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import BadRequest, TooLarge, Unavailable
from valet_protocol.requests import (
    ListNotifications,
    MarkNotificationsRead,
    NotificationPage,
    NotificationsRead,
)
from valet_service import database, rpc

from valet_event_bus import limits
from valet_event_bus.notifier import tell_read
from valet_event_bus.store import Read, Store

NAME = "event-bus"


class NotificationRequests:
    """Answers. Raises `Unavailable` while the database is away."""

    def __init__(self, nc: Client, store: Store) -> None:
        self._nc = nc
        self._store = store

    async def start(self) -> None:
        """Begin to answer; replicas share the requests."""
        nc, listed, marked = self._nc, ListNotifications, MarkNotificationsRead
        await rpc.serve(nc, subjects.service(NAME, listed.method), listed, self.page, queue=NAME)
        await rpc.serve(nc, subjects.service(NAME, marked.method), marked, self.mark, queue=NAME)

    async def page(self, request: ListNotifications) -> NotificationPage:
        try:
            async with asyncio.timeout(limits.DATABASE_ANSWER):
                return await self._store.page(request.user, request.limit, request.before, request.unread)
        except database.UNAVAILABLE as error:
            raise _unavailable() from error

    async def mark(self, request: MarkNotificationsRead) -> NotificationsRead:
        if not request.all and not request.ids:
            raise BadRequest("nothing_named", "Name the `ids` of the notifications that were read, or say `all`.")
        if len(request.ids) > limits.NOTIFICATIONS_NAMED:
            raise TooLarge("too_many_ids", f"Name at most {limits.NOTIFICATIONS_NAMED} notifications at once.")
        try:
            async with asyncio.timeout(limits.DATABASE_ANSWER):
                ids, unread = await self._store.mark(request.user, None if request.all else request.ids)
        except database.UNAVAILABLE as error:
            raise _unavailable() from error
        for start in range(0, len(ids), limits.NOTIFICATIONS_NAMED):  # a message is a frame that clients must take
            await tell_read(self._nc, Read(user=request.user, ids=ids[start : start + limits.NOTIFICATIONS_NAMED]))
        return NotificationsRead(marked=len(ids), unread=unread)


def _unavailable() -> Unavailable:
    return Unavailable("notifications_unavailable", "Notifications cannot be read at the moment; try again.")
