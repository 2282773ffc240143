"""What an agent tells people by itself. Pure."""

from collections.abc import Iterable

import msgspec
from valet_protocol.ids import derived_id
from valet_protocol.tools.notifications import NoteLevel

from valet_event_bus.notify import Audience, Notification


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A short note of an agent."""

    id: str
    session_id: str
    """Whose agent writes."""
    level: NoteLevel
    title: str
    text: str
    mailbox: str | None = None
    """The session that is to read it; none for people."""
    time_ms: int


def for_people(note: Note, owner: str, audience: Audience) -> list[Notification]:
    """A note as each who works in the session gets it. The owner is told even of a session of which nothing else is
    known yet."""
    told: Iterable[str] = dict.fromkeys([owner, *audience.acting])
    return [
        Notification(
            id=derived_id("notification", note.id, user),
            user=user,
            kind="agent",
            session_id=note.session_id,
            title=audience.title,
            text=f"{note.title}\n\n{note.text}" if note.text else note.title,
            level=note.level,
            seq=0,
            time_ms=note.time_ms,
        )
        for user in told
        if user
    ]
