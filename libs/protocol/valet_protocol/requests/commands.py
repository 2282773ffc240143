"""Commands to the session ledger. They go to `subjects.ledger_command(session_id, <method>)`.

Every command may be sent again: one that has taken effect before changes nothing and is answered alike.
"""

from typing import ClassVar, Literal

import msgspec

from valet_protocol.events.agent import WorkRef
from valet_protocol.events.facts import (
    Attachment,
    ChildChange,
    CommandName,
    Outcome,
    PromptKind,
    PromptMode,
    Sender,
    SessionPolicy,
)
from valet_protocol.requests.base import Request


class CreateSession(Request, frozen=True, kw_only=True):
    """Start a session. The id is made by the caller, so that a retry is the same session. Reply: `SessionView`."""

    method: ClassVar[str] = "create_session"
    session_id: str
    owner: str
    title: str = ""
    repo: str | None = None
    branch: str | None = None
    model: str
    policy: SessionPolicy = SessionPolicy()
    idempotency_key: str | None = None
    orchestrator: bool = False
    """Whether its agent directs others: it reaches every session of its owner."""
    ancestors: list[str] = []
    """For the ledger: the sessions above it, its parent first."""


class SubmitPrompt(Request, frozen=True, kw_only=True):
    """Give a session a prompt. Reply: `Accepted`. The same prompt id again gives the same reply."""

    method: ClassVar[str] = "submit_prompt"
    session_id: str
    user: str
    prompt_id: str
    content: str
    kind: PromptKind = "prompt"
    mode: PromptMode = "queue"
    channel: str = "web:default"
    model: str | None = None
    fallbacks: list[str] = []
    variant: str | None = None
    attachments: list[Attachment] = []
    author_name: str = ""
    author_email: str = ""
    idempotency_key: str | None = None
    sender: Sender | None = None
    """For the ledger: the session whose agent wrote it."""


class EditPrompt(Request, frozen=True, kw_only=True):
    """Give a waiting prompt another text. Reply: `Done`. One that waits no more is refused with `not_waiting`."""

    method: ClassVar[str] = "edit_prompt"
    session_id: str
    user: str
    prompt_id: str
    content: str


class WithdrawPrompt(Request, frozen=True, kw_only=True):
    """Take a waiting prompt back. Reply: `Done`. One that waits no more is refused with `not_waiting`."""

    method: ClassVar[str] = "withdraw_prompt"
    session_id: str
    user: str
    prompt_id: str


class ReorderQueue(Request, frozen=True, kw_only=True):
    """Put the waiting prompts into another order. Reply: `Done`.

    Those not named keep their order behind the named ones; a name that waits no more is passed over.
    """

    method: ClassVar[str] = "reorder_queue"
    session_id: str
    user: str
    prompt_ids: list[str]


class AnswerQuestion(Request, frozen=True, kw_only=True):
    """Answer a question or permission; the first answer wins. Reply: `Done`."""

    method: ClassVar[str] = "answer_question"
    session_id: str
    user: str
    question_id: str | None = None
    """None answers the only open one."""
    answers: list[list[str]]


class AbortTurn(Request, frozen=True, kw_only=True):
    """Stop the running turn. Reply: `Done`. Nothing running is refused with `nothing_running`."""

    method: ClassVar[str] = "abort_turn"
    session_id: str
    user: str


class TerminateSession(Request, frozen=True, kw_only=True):
    """End a session, those below it, and their sandboxes for good. Their history stays readable. Reply: `Done`."""

    method: ClassVar[str] = "terminate_session"
    session_id: str
    user: str
    session: str | None = None
    """For the ledger: the session above it whose agent, or whose own end, ends it."""
    reason: str = ""
    """Why, for people."""


class RenameSession(Request, frozen=True, kw_only=True):
    """Give a session a title. Reply: `Done`."""

    method: ClassVar[str] = "rename_session"
    session_id: str
    user: str
    title: str


class ChangePolicy(Request, frozen=True, kw_only=True):
    """Change how questions and permissions are treated from now on; open ones too. Owners only. Reply: `Done`."""

    method: ClassVar[str] = "change_policy"
    session_id: str
    user: str
    policy: SessionPolicy


class AddParticipant(Request, frozen=True, kw_only=True):
    """Let somebody take part, or change their role. Owners only. Reply: `Done`."""

    method: ClassVar[str] = "add_participant"
    session_id: str
    user: str
    participant: str
    role: Literal["collaborator", "viewer"]


class RemoveParticipant(Request, frozen=True, kw_only=True):
    """End somebody's part in the session: an owner anybody's, everybody their own. Reply: `Done`."""

    method: ClassVar[str] = "remove_participant"
    session_id: str
    user: str
    participant: str


class CreateShareLink(Request, frozen=True, kw_only=True):
    """Make a link by which people may join. Owners only. Reply: `Done`."""

    method: ClassVar[str] = "create_share_link"
    session_id: str
    user: str
    link_id: str
    token_sha256: str
    """Of the link's token; the ledger never sees the token itself."""
    role: Literal["collaborator", "viewer"]
    expires_ms: int | None = None


class RevokeShareLink(Request, frozen=True, kw_only=True):
    """Make a link void and end the part of those who came by it. Owners only. Reply: `Done`."""

    method: ClassVar[str] = "revoke_share_link"
    session_id: str
    user: str
    link_id: str


class JoinSession(Request, frozen=True, kw_only=True):
    """Join by a link. Reply: `SessionView`. A void link is `link_not_found`; a higher role someone has is kept."""

    method: ClassVar[str] = "join_session"
    session_id: str
    user: str
    token_sha256: str


class RequestCommand(Request, frozen=True, kw_only=True):
    """Have something done in the sandbox between turns. Reply: `CommandView`.

    Refused with `turn_running` while a turn runs. Its result comes as an event, and by `GetCommand`; it has one, or a
    time-out, after a minute at the latest.
    """

    method: ClassVar[str] = "request_command"
    session_id: str
    user: str
    request_id: str
    command: CommandName
    message_id: str | None = None
    channel: str = "web:default"


class ForkSession(Request, frozen=True, kw_only=True):
    """Make a session from another one as it was at a message. Goes to the new session's ledger. Reply: `SessionView`.

    The caller has copied `work` into the new session's folder of the object store.
    """

    method: ClassVar[str] = "fork_session"
    session_id: str
    """The new session's id, made by the caller."""
    owner: str
    source_session: str
    message_id: str | None = None
    """A person's message: as it was before; an agent's: as it was after its turn. None: as it is now."""
    title: str | None = None
    """None: the source's."""
    work: WorkRef | None = None
    idempotency_key: str | None = None


class PlanFork(Request, frozen=True, kw_only=True):
    """What a fork at a message would start from. Goes to the source's ledger. Reply: `ForkPlan`."""

    method: ClassVar[str] = "plan_fork"
    session_id: str
    user: str
    message_id: str | None = None


class ImportEvents(Request, frozen=True, kw_only=True):
    """One page of an import, in order. Reply: `Done`. A page that came before changes nothing.

    The first page makes the session; the last one opens it for prompts.
    """

    method: ClassVar[str] = "import_events"
    session_id: str
    """The new session's id, made by the caller."""
    owner: str
    title: str | None = None
    """None: the source's."""
    source_session: str
    offset: int
    """How many events came before this page."""
    events: list[msgspec.Raw]
    """CloudEvents of the export, each with the extension attribute `seq`."""
    last: bool
    work: WorkRef | None = None
    """What its agent starts from, below the new session's `saved/`; what counts is the first page's."""
    idempotency_key: str | None = None


class RequestChild(Request, frozen=True, kw_only=True):
    """Have a session made below this one, with its first prompt. Reply: `Done`, once it is certain that there will be.

    The same request id again is the same child. What is none is this session's own.
    """

    method: ClassVar[str] = "request_child"
    session_id: str
    request_id: str
    prompt: str
    title: str = ""
    repo: str | None = None
    branch: str | None = None
    model: str | None = None
    policy: SessionPolicy | None = None
    orchestrator: bool = False
    notify: bool = False
    """Whether the agent gets a prompt when the child changes."""


class ReportChild(Request, frozen=True, kw_only=True):
    """What became of a child, told to its parent; between ledgers. Reply: `Done`. What it knows already, or better, it
    does not take."""

    method: ClassVar[str] = "report_child"
    session_id: str
    """The parent."""
    child_id: str
    change: ChildChange
    child_seq: int = 0
    turn_id: str | None = None
    title: str = ""
    detail: str = ""
    hops: int = 0
    """How many prompts of agents there are between a person and what the child did."""


class NoteParentTold(Request, frozen=True, kw_only=True):
    """The parent has what became of this session up to one of its events; between ledgers. Reply: `Done`."""

    method: ClassVar[str] = "note_parent_told"
    session_id: str
    child_seq: int


class RequestCompletion(Request, frozen=True, kw_only=True):
    """Its own agent says that the session's work is over. Reply: `Done`. It ends when nothing is left to do in it."""

    method: ClassVar[str] = "request_completion"
    session_id: str
    request_id: str
    outcome: Outcome = "done"
    summary: str
