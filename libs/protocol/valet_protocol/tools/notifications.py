"""Short notes: to people, and into the mailboxes of sessions. Answered by the event bus.

Unlike a message, a note starts no turn: whoever it is for reads it when they look.
"""

from typing import Literal

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool

NoteLevel = Literal["info", "warning", "error"]


class NotificationEmitted(Reply, frozen=True, kw_only=True):
    """The note is stored."""

    id: str
    """Made from this call's `request_id`."""


class EmitNotification(Tool, frozen=True, kw_only=True):
    """Send a short note to the people of this session, or into another session's mailbox.

    Use it when somebody should know something and need not answer: a long task is done, a decision was taken, something
    needs attention later. To give another agent something to do, use send_message.
    """

    name = method = "emit_notification"
    category = "notifications"
    route = "POST /api/notifications/emit"
    reply = NotificationEmitted
    timeout = WRITE

    title: limits.Name
    """What it is about, in one line."""
    text: limits.Note | None = None
    """More, if one line does not say it."""
    level: NoteLevel = "info"
    """How much it matters: `error` where something is broken until somebody acts."""
    target_session: limits.Id | None = None
    """The session whose mailbox gets it, one of the same person; none for this session's people."""


class MailboxNote(Reply, frozen=True, kw_only=True):
    """A note in a session's mailbox."""

    id: str
    title: str
    text: str = ""
    level: NoteLevel
    from_session: str | None = None
    """Who sent it; none for the platform."""
    created_at: str
    """RFC 3339."""
    read_at: str | None = None
    """None while it is unread."""


class MailboxPage(Reply, frozen=True, kw_only=True):
    """Notes, the newest first."""

    items: list[MailboxNote]
    unread: int
    """How many of all are unread."""
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class CheckMailbox(Tool, frozen=True, kw_only=True):
    """Read this session's mailbox: notes that other sessions sent it.

    Reading does not mark them: call mark_mailbox_read with those you have dealt with.
    """

    name = method = "check_mailbox"
    category = "notifications"
    route = "GET /api/notifications"
    reply = MailboxPage

    unread: bool = True
    """Only those not marked read yet."""
    limit: limits.Page = 20
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class MailboxRead(Reply, frozen=True, kw_only=True):
    """They are marked."""

    marked: int
    """How many had been unread."""
    unread: int
    """How many still are."""


class MarkMailboxRead(Tool, frozen=True, kw_only=True):
    """Mark notes of this session's mailbox as read. Doing it again is fine; ids that are not its own are passed over.

    Neither `ids` nor `all` is refused with `nothing_named`.
    """

    name = method = "mark_mailbox_read"
    category = "notifications"
    route = "POST /api/notifications/read"
    reply = MailboxRead
    timeout = WRITE

    ids: list[limits.Id] = []
    """The notes, by id."""
    all: bool = False
    """Every one there is at the moment."""
