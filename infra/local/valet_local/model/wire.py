"""OpenAI's chat-completions format, as far as the scripted model speaks it."""

import msgspec


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a call's function; the name only in the first."""

    arguments: str
    name: str | None = None


class CallDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a tool call; the id only in the first."""

    index: int
    function: FunctionDelta
    id: str | None = None
    type: str | None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is new in a chunk; in a whole answer, the message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[CallDelta, ...] = ()


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice of a chunk."""

    index: int = 0
    delta: Delta
    finish_reason: str | None = None


class CachedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's details of the prompt's tokens."""

    cached_tokens: int


class ReasoningTokens(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's details of the completion's tokens."""

    reasoning_tokens: int


class WireUsage(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's usage object; counts are tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `chat.completion.chunk`."""

    id: str
    object: str
    created: int  # seconds since 1970
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: WireUsage | None = None


class WholeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice of a whole answer."""

    index: int = 0
    message: Delta
    finish_reason: str


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """A `chat.completion`: the answer to a request that does not stream."""

    id: str
    object: str
    created: int  # seconds since 1970
    model: str
    choices: tuple[WholeChoice, ...]
    usage: WireUsage


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model in the list of models."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "scripted"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET /v1/models."""

    object: str = "list"
    data: tuple[ModelInfo, ...]


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI says about an error."""

    message: str
    type: str
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error."""

    error: ErrorDetail


def error_body(message: str, kind: str) -> bytes:
    """An error object; `kind` as OpenAI names it, e.g. `invalid_request_error`."""
    return msgspec.json.encode(ErrorBody(error=ErrorDetail(message=message, type=kind)))
