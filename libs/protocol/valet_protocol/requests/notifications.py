"""What a person is told of sessions they do not look at. Requests go to `subjects.service("event-bus", …)`."""

from typing import ClassVar, Literal

from valet_protocol.requests.base import Reply, Request

NotificationKind = Literal[
    "question_asked",
    "permission_asked",
    "turn_completed",
    "turn_failed",
    "turn_interrupted",
    "session_failed",
    "participant_added",
    "agent",
]
"""`agent`: what the session's agent tells people by itself; the others follow from events."""


class NotificationView(Reply, frozen=True, kw_only=True):
    """Something that happened in a session and concerns one user."""

    id: str
    """Derived from the event and the user: the same event makes the same notification."""
    kind: NotificationKind
    session_id: str
    title: str
    """The session's title when it happened; may be empty."""
    text: str
    """What happened, for people: the question, the error, the role, the agent's words."""
    level: Literal["info", "warning", "error"] | None = None
    """How much it matters, where an agent says it."""
    turn_id: str | None = None
    """The turn that ended."""
    question_id: str | None = None
    """The question or permission that waits."""
    created_at: str
    """When it happened, RFC 3339."""
    read_at: str | None = None
    """When it was read, or the question settled; none while it is unread."""
    seq: int
    """Sequence of the event; 0 for what an agent says, which is no event."""


class NotificationPage(Reply, frozen=True, kw_only=True):
    """A page of notifications, newest first."""

    items: list[NotificationView]
    unread: int
    """How many of all the user's notifications are unread."""
    next: int | None
    """Pass as `before` for the next page; none at the end."""


class ListNotifications(Request, frozen=True, kw_only=True):
    """A user's notifications, newest first. Reply: `NotificationPage`."""

    method: ClassVar[str] = "list_notifications"
    user: str
    limit: int = 50
    """At most 200."""
    before: int | None = None
    """`next` of the page before."""
    unread: bool = False
    """Only those not read yet."""


class MarkNotificationsRead(Request, frozen=True, kw_only=True):
    """A user has read some or all of their notifications; doing it again is fine. Reply: `NotificationsRead`.

    Neither `ids` nor `all` is refused with `nothing_named`. Ids of nobody's, or somebody else's, are passed over.
    """

    method: ClassVar[str] = "mark_notifications_read"
    user: str
    ids: list[str] = []
    """At most 1,000."""
    all: bool = False
    """Every one there is at the moment."""


class NotificationsRead(Reply, frozen=True, kw_only=True):
    """They are read."""

    marked: int
    """How many had been unread."""
    unread: int
    """How many still are."""
