"""Requests of agents about notes: `rpc.session.<id>.…`."""

import time
from collections.abc import Callable

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import BadRequest, NotFound, TooLarge
from valet_protocol.ids import derived_id
from valet_protocol.tools.notifications import (
    CheckMailbox,
    EmitNotification,
    MailboxPage,
    MailboxRead,
    MarkMailboxRead,
    NotificationEmitted,
)
from valet_service import rpc
from valet_service.owners import Owners

from valet_event_bus import limits
from valet_event_bus.errors import NoSuchMailbox, NotACursor
from valet_event_bus.note_store import NoteStore, position
from valet_event_bus.notes import Note
from valet_event_bus.notifier import tell_notification
from valet_event_bus.serve import NAME


class NoteRequests:
    """Answers. Raises `NotesAway` while the database is away."""

    def __init__(
        self,
        nc: Client,
        notes: NoteStore,
        owners: Owners,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._nc = nc
        self._notes = notes
        self._owners = owners
        self._now_ms = now_ms

    async def start(self) -> None:
        """Begin to answer; replicas share the requests."""
        nc, emit, check, mark = self._nc, EmitNotification, CheckMailbox, MarkMailboxRead
        await rpc.serve(nc, subjects.sandbox_request("*", emit.method), emit, self.emit, queue=NAME)
        await rpc.serve(nc, subjects.sandbox_request("*", check.method), check, self.check, queue=NAME)
        await rpc.serve(nc, subjects.sandbox_request("*", mark.method), mark, self.mark, queue=NAME)

    async def emit(self, request: EmitNotification) -> NotificationEmitted:
        """Raises `NoSuchMailbox`, `TooManyNotes` and `MailboxFull`."""
        owner = await self._owners.of(request.session_id)
        note = Note(
            id=derived_id("note", request.session_id, request.request_id),
            session_id=request.session_id,
            level=request.level,
            title=_storable(request.title),
            text=_storable(request.text or ""),
            mailbox=request.target_session,
            time_ms=self._now_ms(),
        )
        if note.mailbox is not None:
            await self._must_be_same_persons(owner.user, note.mailbox)
            return await self._notes.put(note, request.request_id, note.mailbox)
        answer, news = await self._notes.tell_people(note, request.request_id, owner.user)
        for one in news:
            await tell_notification(self._nc, one)
        return answer

    async def check(self, request: CheckMailbox) -> MailboxPage:
        """Raises `NotACursor`."""
        before = position(request.before)
        if before is None:
            raise NotACursor
        return await self._notes.page(request.session_id, request.limit, before, request.unread)

    async def mark(self, request: MarkMailboxRead) -> MailboxRead:
        if not request.all and not request.ids:
            raise BadRequest("nothing_named", "Name the `ids` of the notes you have dealt with, or say `all`.")
        if len(request.ids) > limits.NOTIFICATIONS_NAMED:
            raise TooLarge("too_many_ids", f"Name at most {limits.NOTIFICATIONS_NAMED} notes at once.")
        ids = None if request.all else [one for one in request.ids if "\0" not in one]
        return await self._notes.mark(request.session_id, request.request_id, ids, self._now_ms())

    async def _must_be_same_persons(self, user: str, session_id: str) -> None:
        """Raises `NoSuchMailbox`."""
        try:
            owner = await self._owners.of(session_id)
        except NotFound:
            raise NoSuchMailbox(session_id) from None
        if owner.user != user:
            raise NoSuchMailbox(session_id)


def _storable(text: str) -> str:
    """Without the one character PostgreSQL does not store."""
    return text.replace("\0", "")
