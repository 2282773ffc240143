"""A plan as OpenAI wire format: the moments of a stream, or one whole answer. Pure; the server only carries it out."""

from collections.abc import Iterator

import msgspec

from valet_local.model.plan import Call, Plan, WordRun
from valet_local.model.scenario import Cut, Hang, Reasoning, StreamError, Text, Usage
from valet_local.model.wire import (
    CachedTokens,
    CallDelta,
    Chunk,
    ChunkChoice,
    Delta,
    FunctionDelta,
    ReasoningTokens,
    Whole,
    WholeChoice,
    WireUsage,
    error_body,
)

_DONE = b"data: [DONE]\n\n"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is sent for so long."""

    ms: int


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the body: one server-sent event."""

    data: bytes


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is closed without the body's end."""


Moment = Wait | Send | Break


def moments(plan: Plan, *, created: int, include_usage: bool) -> Iterator[Moment]:
    """The stream, in order. `created` is the time in seconds since 1970.

    A fault counts chunks of content; one that comes later than the last chunk strikes before the finish.
    """

    def chunk(delta: Delta, finish: str | None = None) -> Send:
        choices = (ChunkChoice(delta=delta, finish_reason=finish),)
        return _event(_chunk(plan, created, choices))

    fault = plan.fault
    if isinstance(fault, Hang) and fault.after_chunks == 0:
        yield Wait(ms=fault.ms)
        fault = None
    if plan.pacing.first_delay_ms:
        yield Wait(ms=plan.pacing.first_delay_ms)
    yield chunk(Delta(role="assistant", content=""))
    position = 0
    for position, delta in enumerate(deltas(plan), start=1):
        if fault is not None and position > _position(fault):
            yield from _strike(fault)
            if not isinstance(fault, Hang):
                return
            fault = None
        if position > 1 and plan.pacing.delay_ms:
            yield Wait(ms=plan.pacing.delay_ms)
        yield chunk(delta)
    if fault is not None:
        yield from _strike(fault)
        if not isinstance(fault, Hang):
            return
    yield chunk(Delta(), plan.finish)
    if include_usage:
        yield _event(_chunk(plan, created, (), _usage(plan.usage)))
    yield Send(data=_DONE)


def whole(plan: Plan, *, created: int) -> bytes:
    """The answer as one JSON object."""
    text = "".join(delta.content or "" for delta in deltas(plan))
    reasoning = "".join(delta.reasoning_content or "" for delta in deltas(plan))
    calls = [piece for piece in plan.pieces if isinstance(piece, Call)]
    message = Delta(
        role="assistant",
        content=text,
        reasoning_content=reasoning or None,
        tool_calls=tuple(_call_start(index, call, call.arguments) for index, call in enumerate(calls)),
    )
    return msgspec.json.encode(
        Whole(
            id=plan.id,
            object="chat.completion",
            created=created,
            model=plan.model,
            choices=(WholeChoice(message=message, finish_reason=plan.finish),),
            usage=_usage(plan.usage),
        )
    )


def deltas(plan: Plan) -> Iterator[Delta]:
    """The content of the answer, chunk by chunk."""
    size = plan.pacing.chunk_chars
    call_index = 0
    for piece in plan.pieces:
        match piece:
            case Text():
                yield from (Delta(content=text) for text in _split(piece.text, size))
            case Reasoning():
                yield from (Delta(reasoning_content=text) for text in _split(piece.text, size))
            case WordRun():
                last = piece.count
                yield from (Delta(content=f"w{n} " if n < last else f"w{n}") for n in range(1, last + 1))
            case Call():
                yield Delta(tool_calls=(_call_start(call_index, piece, ""),))
                for text in _split(piece.arguments, size):
                    function = FunctionDelta(arguments=text)
                    yield Delta(tool_calls=(CallDelta(index=call_index, function=function),))
                call_index += 1


def _call_start(index: int, call: Call, arguments: str) -> CallDelta:
    function = FunctionDelta(name=call.name, arguments=arguments)
    return CallDelta(index=index, id=call.id, type="function", function=function)


def _split(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _position(fault: object) -> int:
    return fault.after_chunks if isinstance(fault, Cut | StreamError | Hang) else 0


def _strike(fault: object) -> Iterator[Moment]:
    match fault:
        case Cut():
            yield Break()
        case StreamError():
            yield Send(data=b"data: " + error_body(fault.message, "server_error") + b"\n\n")
        case Hang():
            yield Wait(ms=fault.ms)
        case _:
            raise TypeError(f"{fault!r} is no fault of a stream")


def _chunk(plan: Plan, created: int, choices: tuple[ChunkChoice, ...], usage: WireUsage | None = None) -> Chunk:
    return Chunk(
        id=plan.id, object="chat.completion.chunk", created=created, model=plan.model, choices=choices, usage=usage
    )


def _event(chunk: Chunk) -> Send:
    return Send(data=b"data: " + msgspec.json.encode(chunk) + b"\n\n")


def _usage(usage: Usage) -> WireUsage:
    return WireUsage(
        prompt_tokens=usage.input,
        completion_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        prompt_tokens_details=CachedTokens(cached_tokens=usage.cached),
        completion_tokens_details=ReasoningTokens(reasoning_tokens=usage.reasoning),
    )
