"""Other sessions: children that work for this one, and what is said between sessions. Answered by the session ledger.

A session reaches those of its own tree: its parents, its children, theirs. One whose agent directs others
(an orchestrator) reaches all sessions of its person. Any other id is `session_not_found`.
"""

from typing import Literal

from valet_protocol.requests.base import Reply, SessionStatus
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, WRITE, Tool


class SessionBrief(Reply, frozen=True, kw_only=True):
    """A session in a few words."""

    session: str
    """Its id."""
    title: str
    status: SessionStatus
    """`busy` while its agent works, `ready` while it waits for a prompt, `terminated` or `failed` when it is over."""
    repo: str | None = None
    branch: str | None = None
    model: str = ""
    parent: str | None = None
    """The session that spawned it."""
    turns: int = 0
    """Turns so far."""
    queued: int = 0
    """Prompts that wait."""
    cost: float = 0.0
    """US dollars so far."""
    created_at: str
    """RFC 3339."""
    updated_at: str
    """RFC 3339."""


class SessionList(Reply, frozen=True, kw_only=True):
    """Sessions, the newest first."""

    items: list[SessionBrief]
    next: str | None = None
    """Pass as `before` for the next page; none at the end."""


class ChildSpawned(Reply, frozen=True, kw_only=True):
    """A child session is there, and its first prompt is accepted."""

    child_session: str
    """Its id, made from this call's `request_id`."""
    title: str
    prompt_id: str
    """Its first prompt."""


class SpawnChild(Tool, frozen=True, kw_only=True):
    """Start a child session: another agent, in a sandbox of its own, that works on a task by itself.

    Use it for work that can be done beside yours. The child knows nothing but what the prompt says, so say everything
    it needs: the aim, what is known, what is to come back and in which form. It reports with notify_parent and
    complete_session; look at it with session_status and read_messages. Comes back at once with the child's id.
    """

    name = method = "spawn_child"
    category = "sessions"
    route = "POST /api/spawn-child"
    reply = ChildSpawned
    timeout = LONG

    prompt: limits.Text
    """The child's task, complete in itself."""
    title: limits.Name | None = None
    """What people see in lists; none for one made from the prompt."""
    repo: limits.Name | None = None
    """Repository to work on, as this session's is given; none for this session's own."""
    branch: limits.Name | None = None
    """Branch to start from; none for this session's, or the default one of another repository."""
    model: limits.Name | None = None
    """`provider/model`, see list_models; none for this session's."""
    notify: bool = False
    """Whether you are given a prompt when the child's turns end, when it is done and when it fails. Without it you look
    yourself."""


class SessionEnded(Reply, frozen=True, kw_only=True):
    """A session is over. Its history stays readable."""

    session: str
    already: bool = False
    """Whether it had ended before."""


class TerminateChild(Tool, frozen=True, kw_only=True):
    """End a child session and its sandbox for good, also in the middle of its work.

    Use it when a child's work is no longer needed or has gone wrong. What it has not pushed is lost; its history stays
    readable. Only sessions that this one has spawned, and their children.
    """

    name = method = "terminate_child"
    category = "sessions"
    route = "POST /api/terminate-child"
    reply = SessionEnded
    timeout = WRITE

    child_session: limits.Id
    """The child's id, as spawn_child gave it."""
    reason: limits.Note | None = None
    """Why, for people."""


class MessageSent(Reply, frozen=True, kw_only=True):
    """The message is in the other session's queue and cannot be lost."""

    session: str
    """The session that was written to."""
    prompt_id: str
    """The prompt it became, made from this call's `request_id`."""
    status: Literal["queued", "dispatched", "done"]
    """Whether it waits for the agent there, or that agent works on it."""


class SendMessage(Tool, frozen=True, kw_only=True):
    """Send a message to another session's agent, who takes it as a prompt that says it came from this session.

    Use it to give a child more to do, to answer it or to correct it. The answer comes later: read it with
    read_messages.
    """

    name = method = "send_message"
    category = "sessions"
    route = "POST /api/session-message"
    reply = MessageSent
    timeout = WRITE

    target_session: limits.Id
    """The session to write to."""
    content: limits.Text
    """What to say."""
    mode: Literal["queue", "steer"] = "queue"
    """`queue`: when what it does is done; `steer`: into what it does right now."""


class SessionMessage(Reply, frozen=True, kw_only=True):
    """One message of a conversation."""

    id: str
    seq: int
    """Its position: pass the last one as `after` to read on."""
    role: Literal["user", "assistant"]
    """`user`: who gave the prompt, a person or another session; `assistant`: the agent."""
    author: str | None = None
    """User id of a person, or `session:<id>`; none for the agent."""
    text: str
    tools: list[str] = []
    """Names of the tools that the agent called in it."""
    complete: bool = True
    """False while the agent is still writing."""
    created_at: str
    """RFC 3339."""


class SessionMessages(Reply, frozen=True, kw_only=True):
    """Messages in their order."""

    session: str
    items: list[SessionMessage]
    next: int | None = None
    """Pass as `after` to read on; none where these are the last ones there are."""


class ReadMessages(Tool, frozen=True, kw_only=True):
    """Read the conversation of another session: what it was asked and what its agent answered.

    Without `after` the newest messages come; with it those that follow.
    """

    name = method = "read_messages"
    category = "sessions"
    route = "GET /api/session-messages"
    reply = SessionMessages

    target_session: limits.Id
    """The session to read."""
    limit: limits.Few = 20
    """How many messages at most."""
    after: limits.After | None = None
    """The `seq` of the last message you have; none for the newest."""


class MessagesForwarded(Reply, frozen=True, kw_only=True):
    """The messages are in the other session's queue, as one prompt."""

    session: str
    """The session they went to."""
    forwarded: int
    """How many messages."""
    prompt_id: str | None
    """The prompt they became; none where there was nothing to forward."""


class ForwardMessages(Tool, frozen=True, kw_only=True):
    """Give messages of one session to another, word for word and as one prompt.

    Use it to let one child go on from what another has found, without repeating it yourself. Without `seqs` the newest
    messages of the agent there are taken.
    """

    name = method = "forward_messages"
    category = "sessions"
    route = "POST /api/forward-messages"
    reply = MessagesForwarded
    timeout = WRITE

    from_session: limits.Id
    """The session whose messages are taken."""
    to_session: limits.Id
    """The session that gets them."""
    seqs: list[limits.After] = []
    """Which messages, by their `seq` from read_messages; none for the newest."""
    limit: limits.Few = 5
    """How many of the newest, where no `seqs` are given."""
    note: limits.Note | None = None
    """What to say before them: why they come and what is to be done with them."""


class ListChildren(Tool, frozen=True, kw_only=True):
    """List the sessions that this one has spawned, the newest first, with what they are doing."""

    name = method = "list_children"
    category = "sessions"
    route = "GET /api/child-sessions"
    reply = SessionList

    status: Literal["all", "active", "ended"] = "all"
    """`ended`: those that are terminated or have failed; `active`: the others."""
    limit: limits.Page = 50
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""


class SessionStatusReport(Reply, frozen=True, kw_only=True):
    """How a session is doing."""

    session: SessionBrief
    detail: str = ""
    """Why, where its status needs an explanation."""
    turn_running: bool = False
    last_turn: Literal["completed", "failed", "interrupted"] | None = None
    """How its last turn ended; none before the first one has."""
    last_error: str | None = None
    """Why it failed."""
    open_questions: list[str] = []
    """What its agent has asked and nobody has answered yet."""
    last_text: str = ""
    """The beginning of what its agent said last."""


class GetSessionStatus(Tool, frozen=True, kw_only=True):
    """See how another session is doing: whether its agent works, waits for an answer, is done or has failed."""

    name = method = "session_status"
    category = "sessions"
    route = "GET /api/session-status"
    reply = SessionStatusReport

    target_session: limits.Id
    """The session to look at."""


class CompleteSession(Tool, frozen=True, kw_only=True):
    """End this session: its task is done, or cannot be done. The parent is told, if there is one.

    Call it last, after everything worth keeping is pushed or reported: the sandbox ends with the session.
    """

    name = method = "complete_session"
    category = "sessions"
    route = "POST /api/complete-session"
    reply = SessionEnded
    timeout = WRITE
    orchestrators = False

    summary: limits.Note
    """What came of it, for the parent and for people: results, pull requests, what is left."""
    outcome: Literal["done", "failed"] = "done"
    """Whether the task was done."""


class NotifyParent(Tool, frozen=True, kw_only=True):
    """Tell the session that spawned this one something, while the work goes on.

    Use it for results, for news that change the plan, and when you are stuck. Refused with `no_parent` in a session
    that a person started.
    """

    name = method = "notify_parent"
    category = "sessions"
    route = "POST /api/notify-parent"
    reply = MessageSent
    timeout = WRITE
    orchestrators = False

    content: limits.Text
    """What to say."""
    mode: Literal["queue", "steer"] = "queue"
    """`queue`: when what it does is done; `steer`: into what it does right now."""


class ListSessions(Tool, frozen=True, kw_only=True):
    """List the sessions of this session's tree, the newest first; for one that directs others, all of its person's."""

    name = method = "list_sessions"
    category = "sessions"
    route = "GET /api/sessions"
    reply = SessionList

    status: Literal["all", "active", "ended"] = "all"
    """`ended`: those that are terminated or have failed; `active`: the others."""
    limit: limits.Page = 50
    """How many at most."""
    before: limits.Id | None = None
    """`next` of the page before."""
