"""OpenCode's shapes, as far as the runner reads them: events of its stream and answers of its API (1.18.33).

Fields it may leave out have defaults, fields that are not read are not named. Source: reference of the recorded
behaviour (OpenCode's own OpenAPI document, and streams recorded from a running server).
"""

from typing import Literal

import msgspec

_NAMES = {
    "session_id": "sessionID",
    "message_id": "messageID",
    "part_id": "partID",
    "call_id": "callID",
    "parent_id": "parentID",
    "provider_id": "providerID",
    "model_id": "modelID",
    "request_id": "requestID",
    "status_code": "statusCode",
}


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: _NAMES.get(name, name)):
    """Base of everything OpenCode says."""


class Span(Shape, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: int | None = None
    completed: int | None = None
    start: int | None = None
    end: int | None = None


class ErrorData(Shape, frozen=True, kw_only=True):
    """What an error says."""

    message: str = ""
    status_code: int | None = None


class Error(Shape, frozen=True, kw_only=True):
    """An error with its name."""

    name: str
    data: ErrorData = ErrorData()


class Cache(Shape, frozen=True, kw_only=True):
    """Cached tokens."""

    read: float | None = 0
    write: float | None = 0


class TokenCounts(Shape, frozen=True, kw_only=True):
    """Tokens of a message."""

    input: float | None = 0
    output: float | None = 0
    reasoning: float | None = 0
    cache: Cache = Cache()


class Info(Shape, frozen=True, kw_only=True):
    """A message without its parts."""

    id: str
    role: str
    session_id: str
    time: Span = Span()
    cost: float = 0.0
    tokens: TokenCounts = TokenCounts()
    finish: str | None = None
    error: Error | None = None
    provider_id: str | None = None
    model_id: str | None = None
    parent_id: str | None = None
    """Of an assistant's message: the user message it answers."""


class ToolState(Shape, frozen=True, kw_only=True):
    """The state of a tool call; a running bash has its output so far in `metadata`."""

    status: Literal["pending", "running", "completed", "error"]
    input: dict[str, object] = {}
    output: str | None = None
    title: str | None = None
    error: str | None = None
    metadata: dict[str, object] = {}
    time: Span = Span()


class Part(Shape, frozen=True, kw_only=True):
    """A part of a message. Types that matter here: `text`, `reasoning`, `tool`."""

    id: str
    message_id: str
    session_id: str
    type: str
    text: str = ""
    time: Span | None = None
    tool: str = ""
    call_id: str = ""
    state: ToolState | None = None


class Message(Shape, frozen=True, kw_only=True):
    """A message with its parts, as the API lists it."""

    info: Info
    parts: list[Part] = []


class Rule(Shape, frozen=True, kw_only=True):
    """A permission rule of a conversation; of several that match, the last one counts."""

    permission: str
    pattern: str
    action: str


class Revert(Shape, frozen=True, kw_only=True):
    """How far a conversation is taken back: to before this message. `diff` is what that did to the files."""

    message_id: str
    diff: str = ""


class Session(Shape, frozen=True, kw_only=True):
    """A conversation; one with a parent belongs to a sub-agent."""

    id: str
    title: str = ""
    parent_id: str | None = None
    permission: list[Rule] | None = None
    revert: Revert | None = None


class Command(Shape, frozen=True, kw_only=True):
    """A slash command, an entry of `GET /command`."""

    name: str
    description: str = ""


class Status(Shape, frozen=True, kw_only=True):
    """What a conversation is doing; `next` is when a retry comes, in milliseconds since 1970."""

    type: str
    attempt: int | None = None
    message: str = ""
    next: float | None = None


class ToolRef(Shape, frozen=True, kw_only=True):
    """The tool call that asks."""

    message_id: str | None = None
    call_id: str | None = None


class Option(Shape, frozen=True, kw_only=True):
    """An answer on offer."""

    label: str
    description: str = ""


class Ask(Shape, frozen=True, kw_only=True):
    """One question."""

    question: str
    header: str = ""
    options: list[Option] = []
    multiple: bool | None = False
    custom: bool | None = True


class Todo(Shape, frozen=True, kw_only=True):
    """A line of the to-do list."""

    content: str
    status: str
    priority: str = ""


# -- events of the stream: what `properties` holds, named by what happened


class SessionSeen(Shape, frozen=True, kw_only=True):
    """`session.created`, `session.updated`."""

    info: Session


class MessageUpdated(Shape, frozen=True, kw_only=True):
    """`message.updated`."""

    info: Info


class PartUpdated(Shape, frozen=True, kw_only=True):
    """`message.part.updated`. `listed` is ours: it comes from the API, not from the stream."""

    part: Part
    listed: bool = False


class PartDelta(Shape, frozen=True, kw_only=True):
    """`message.part.delta`, of text and reasoning alike."""

    session_id: str
    message_id: str
    part_id: str
    field: str = "text"
    delta: str


class SessionStatus(Shape, frozen=True, kw_only=True):
    """`session.status`."""

    session_id: str
    status: Status


class SessionIdle(Shape, frozen=True, kw_only=True):
    """`session.idle`."""

    session_id: str


class SessionError(Shape, frozen=True, kw_only=True):
    """`session.error`; not always the end (a context overflow is compacted away)."""

    session_id: str | None = None
    error: Error | None = None


class QuestionAsked(Shape, frozen=True, kw_only=True):
    """`question.asked`, and an entry of `GET /question`."""

    id: str
    session_id: str
    questions: list[Ask]
    tool: ToolRef | None = None


class PermissionAsked(Shape, frozen=True, kw_only=True):
    """`permission.asked`, and an entry of `GET /permission`."""

    id: str
    session_id: str
    permission: str
    patterns: list[str] = []
    tool: ToolRef | None = None


class Replied(Shape, frozen=True, kw_only=True):
    """`question.replied`, `permission.replied` (with `reply`)."""

    session_id: str
    request_id: str
    reply: str = ""


class QuestionRejected(Shape, frozen=True, kw_only=True):
    """`question.rejected`."""

    session_id: str
    request_id: str


class TodoUpdated(Shape, frozen=True, kw_only=True):
    """`todo.updated`."""

    session_id: str
    todos: list[Todo]


Frame = (
    SessionSeen
    | MessageUpdated
    | PartUpdated
    | PartDelta
    | SessionStatus
    | SessionIdle
    | SessionError
    | QuestionAsked
    | PermissionAsked
    | Replied
    | QuestionRejected
    | TodoUpdated
)


class Connected(Shape, frozen=True, kw_only=True):
    """`server.connected`: the stream has begun; what happened before it was not seen."""


class Disposed(Shape, frozen=True, kw_only=True):
    """`server.instance.disposed`: OpenCode forgot the workspace; this stream tells nothing any more, a new one does."""


_SHAPES: dict[str, type[Shape]] = {
    "server.connected": Connected,
    "server.instance.disposed": Disposed,
    "session.created": SessionSeen,
    "session.updated": SessionSeen,
    "message.updated": MessageUpdated,
    "message.part.updated": PartUpdated,
    "message.part.delta": PartDelta,
    "session.status": SessionStatus,
    "session.idle": SessionIdle,
    "session.error": SessionError,
    "question.asked": QuestionAsked,
    "question.replied": Replied,
    "question.rejected": QuestionRejected,
    "permission.asked": PermissionAsked,
    "permission.replied": Replied,
    "todo.updated": TodoUpdated,
}


class _Outer(msgspec.Struct, frozen=True):
    type: str
    properties: msgspec.Raw = msgspec.Raw(b"{}")


_outer = msgspec.json.Decoder(_Outer)
_decoders = {name: msgspec.json.Decoder(shape) for name, shape in _SHAPES.items()}


def decode(data: bytes) -> Shape | None:
    """One `data:` of the stream; none for a type that is not read. Raises `msgspec.MsgspecError`."""
    outer = _outer.decode(data)
    decoder = _decoders.get(outer.type)
    return decoder.decode(outer.properties) if decoder else None
