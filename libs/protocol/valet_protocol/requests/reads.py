"""Reads of the session ledger. They go to `subjects.ledger_command`, those over many sessions to `ledger_query`."""

from typing import ClassVar, Literal

from valet_protocol.requests.base import Request


class GetSession(Request, frozen=True, kw_only=True):
    """Reply: `SessionView`. A session one does not take part in is `session_not_found`."""

    method: ClassVar[str] = "get_session"
    session_id: str
    user: str


class ListSessions(Request, frozen=True, kw_only=True):
    """Newest first, those one user owns or takes part in. Goes to `subjects.ledger_query`. Reply: `SessionPage`."""

    method: ClassVar[str] = "list_sessions"
    user: str
    limit: int = 50
    before: str | None = None
    """Session id to continue below."""
    parent: str | None = None
    """Instead, the children of this session, which the user may see."""
    tree: str | None = None
    """Instead, this topmost session, which the user may see, and every one below it."""
    status: Literal["all", "active", "ended"] = "all"
    """`ended`: those that are terminated or have failed; `active`: the others."""


class ListMessages(Request, frozen=True, kw_only=True):
    """Messages in the order of the log. Reply: `MessagePage`."""

    method: ClassVar[str] = "list_messages"
    session_id: str
    user: str
    limit: int = 100
    after: int = 0
    """Sequence of the last message already seen."""
    before: int | None = None
    """The newest messages below this sequence, instead of the first ones above `after`."""
    nested: bool = False
    """Whether messages of sub-agents stand under the tool call that started them, instead of between the others."""
    conversation: str | None = None
    """Only the messages of this sub-agent's conversation."""


class ListTurns(Request, frozen=True, kw_only=True):
    """Turns in the order of the log. Reply: `TurnPage`."""

    method: ClassVar[str] = "list_turns"
    session_id: str
    user: str
    limit: int = 100
    after: int = 0
    """Sequence of the last turn already seen."""


class ListPrompts(Request, frozen=True, kw_only=True):
    """Every prompt ever accepted and what became of it, in the order of the log. Reply: `PromptPage`."""

    method: ClassVar[str] = "list_prompts"
    session_id: str
    user: str
    limit: int = 100
    after: int = 0
    """Sequence of the last prompt already seen."""


class GetCommand(Request, frozen=True, kw_only=True):
    """A command and its result. Reply: `CommandView`."""

    method: ClassVar[str] = "get_command"
    session_id: str
    user: str
    request_id: str


class GetReview(Request, frozen=True, kw_only=True):
    """The findings of a review, of the latest one if no turn is named. Reply: `ReviewView`."""

    method: ClassVar[str] = "get_review"
    session_id: str
    user: str
    turn_id: str | None = None


class ListParticipants(Request, frozen=True, kw_only=True):
    """Who takes part, and by which links one may join. Reply: `ParticipantList`; links are for owners only."""

    method: ClassVar[str] = "list_participants"
    session_id: str
    user: str


class GetState(Request, frozen=True, kw_only=True):
    """The session as it was right after an event, folded from the log. Reply: `StateView`."""

    method: ClassVar[str] = "get_state"
    session_id: str
    user: str
    at: int
    """Sequence; one between two events of the session means the earlier one. Before the first: `bad_sequence`."""
    limit: int = 100
    """Messages in one reply."""
    after: int = 0
    """Sequence of the last message already seen."""
    nested: bool = False
    """As of `ListMessages`."""


class GetDiff(Request, frozen=True, kw_only=True):
    """The workspace against the session's base, as of the end of the last turn. Reply: `DiffView`."""

    method: ClassVar[str] = "get_diff"
    session_id: str
    user: str
    turn_id: str | None = None
    """Only what this turn changed."""


class FindImage(Request, frozen=True, kw_only=True):
    """With which session a picture lies that this one shows. Reply: `ImagePlace`; refused with `image_not_found`."""

    method: ClassVar[str] = "find_image"
    session_id: str
    user: str
    image_id: str


class ReadArchive(Request, frozen=True, kw_only=True):
    """Archived events of a session, for what the stream no longer holds. Reply: `ArchivePage`."""

    method: ClassVar[str] = "read_archive"
    session_id: str
    after: int
    before: int
    """Exclusive upper sequence."""
    limit: int = 500
    export_for: str | None = None
    """User id: leave out what an export for them must not carry. None: byte for byte, for other services."""


class ListSuperfluousWork(Request, frozen=True, kw_only=True):
    """Saved work of a session that nothing needs any more; for whoever deletes objects. Reply: `SuperfluousWork`.

    What was deleted is named again. A fork of another session may still have planned to start from such an object: one
    that is gone is no work.
    """

    method: ClassVar[str] = "list_superfluous_work"
    session_id: str
