"""Errors of the event bus.

EventBusError
├── BadHandOver     a message on the hand-over socket that is not one; its sender is cut
└── Gone            the client went away while something was being sent to it

Refused (valet_protocol.errors), to agents
├── NoSuchMailbox   404  a note is for a session that is not there, or somebody else's
├── NotACursor      400  `before` did not come from a page
├── TooManyNotes    429  an agent writes more than anybody reads
├── MailboxFull     429  the other session does not read its notes
└── NotesAway       503  the database does not answer
"""

from valet_protocol.errors import BadRequest, NotFound, TooMany, Unavailable


class EventBusError(Exception):
    """Any error of this package."""


class BadHandOver(EventBusError):
    """Bytes on the hand-over socket that do not decode, or that came without a connection."""


class Gone(EventBusError):
    """The client's connection ended."""


class NoSuchMailbox(NotFound):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            "session_not_found",
            f"There is no session {session_id!r} of the same person. Leave `target_session` out to tell this session's"
            " people.",
        )


class NotACursor(BadRequest):
    def __init__(self) -> None:
        super().__init__("bad_cursor", "Pass `next` of the page before as `before`, unchanged, or leave it out.")


class TooManyNotes(TooMany):
    def __init__(self, most: int) -> None:
        super().__init__(
            "too_many_notes", f"An agent may write {most} notes an hour. Put what you have to say into fewer, later."
        )


class MailboxFull(TooMany):
    def __init__(self, most: int) -> None:
        super().__init__(
            "mailbox_full",
            f"{most} notes wait unread in that session's mailbox. If it must know now, use send_message.",
        )


class NotesAway(Unavailable):
    def __init__(self) -> None:
        super().__init__("notifications_unavailable", "Notes cannot be stored or read at the moment; try again.")
