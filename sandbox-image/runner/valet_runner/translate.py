"""OpenCode's frames to Valet's events, one at a time, without side effects.

Every rule here answers a behaviour that was recorded from OpenCode 1.18: frames may come twice, late, out of order or
(after a cut) not at all, and what the API lists is fed in as frames too. So nothing counts on a frame being the first
or the only one of its kind: the state knows what has been said, and only what is new is said.
"""

from collections.abc import Iterable

import msgspec
from valet_protocol.events import agent
from valet_protocol.events.agent import AgentError, Tokens, ToolUpdated
from valet_protocol.events.delta import Delta

from valet_runner import cutting, frames, limits, translate_asks, translate_sessions
from valet_runner.bridge_state import BridgeState, Chunk, Item, MessageState, PartState, Result, TextPart, ToolPart

_RANK = {"pending": 0, "running": 1, "completed": 2, "error": 2}


def translate_all(state: BridgeState, many: Iterable[frames.Shape]) -> Result:
    """Several frames."""
    items: list[Item] = []
    for frame in many:
        state, said = translate(state, frame)
        items += said
    return state, items


def translate(state: BridgeState, frame: frames.Shape) -> Result:
    """One frame: the new state and what is to be published, in order."""
    match frame:
        case frames.PartDelta():
            return _delta(state, frame)
        case frames.PartUpdated(part=part, listed=listed):
            return _part(state, part, listed)
        case frames.MessageUpdated(info=info):
            return _message(state, info)
        case frames.SessionSeen(info=info):
            return translate_sessions.session(state, info)
        case frames.SessionStatus(session_id=session, status=status):
            return translate_sessions.status(state, session, status)
        case frames.SessionIdle(session_id=session) if session == state.root:
            return msgspec.structs.replace(state, idle=True), []
        case frames.SessionError(session_id=session, error=error) if session == state.root and error:
            return msgspec.structs.replace(state, error=_error(error)), []
        case frames.QuestionAsked() | frames.PermissionAsked():
            return translate_asks.asked(state, frame)
        case frames.Replied(request_id=request, reply=reply):
            return translate_asks.resolved(state, request, "rejected" if reply == "reject" else "answered")
        case frames.QuestionRejected(request_id=request):
            return translate_asks.resolved(state, request, "rejected")
        case frames.TodoUpdated(session_id=session, todos=todos) if session == state.root and state.floor:
            lines = [agent.TodoItem(content=t.content, status=t.status, priority=t.priority) for t in todos]
            return state, [agent.TodoUpdated(todos=lines)]
        case _:
            return state, []


# -- messages and parts


def _message(state: BridgeState, info: frames.Info) -> Result:
    if info.role != "assistant" or not state.knows(info.session_id) or not state.of_turn(info.id):
        return state, []
    items: list[Item] = []
    message = state.messages.get(info.id)
    if message is None:
        model = f"{info.provider_id}/{info.model_id}" if info.provider_id and info.model_id else None
        message = MessageState(session=info.session_id, model=model)
        items.append(
            agent.MessageCreated(message_id=info.id, model=model, parent_session=state.parent(info.session_id))
        )
    message = msgspec.structs.replace(
        message,
        cost=info.cost,
        tokens=_tokens(info.tokens),
        finish=info.finish,
        error=_error(info.error) if info.error else message.error,
        parent=info.parent_id or message.parent,
    )
    if info.time.completed is not None and not message.reported:
        state, said = report(state, info.id, message)
        return state, items + said
    return state.with_message(info.id, message), items


def report(state: BridgeState, key: str, message: MessageState) -> Result:
    """The message is whole: complete its text parts and say so."""
    items: list[Item] = []
    for part_id, part in message.parts.items():
        if isinstance(part, TextPart) and not part.done:
            if part.text:
                items.append(agent.TextCompleted(message_id=key, part_id=part_id, kind=part.kind, text=part.text))
            message = message.with_part(part_id, msgspec.structs.replace(part, done=True))
    items.append(
        agent.MessageCompleted(
            message_id=key,
            text=message.text,
            finish=message.finish,
            model=message.model,
            cost=message.cost,
            tokens=message.tokens,
            error=message.error,
            parent_session=state.parent(message.session),
        )
    )
    return state.with_message(key, msgspec.structs.replace(message, reported=True)), items


def _part(state: BridgeState, part: frames.Part, listed: bool) -> Result:
    message = state.messages.get(part.message_id)
    if message is None:  # a user's, or of an earlier turn
        return state, []
    old = message.parts.get(part.id)
    items: list[Item]
    if part.type == "tool" and part.state:
        new, items = _tool(old, part, part.state)
    elif part.type in ("text", "reasoning") and not message.reported:
        new, items = _text(old, part, listed)
    else:
        return state, []
    if new is old:
        return state, []
    return state.with_message(part.message_id, message.with_part(part.id, new)), items


def _text(old: PartState | None, part: frames.Part, listed: bool) -> tuple[PartState, list[Item]]:
    kind = "reasoning" if part.type == "reasoning" else "text"
    if old is None:
        # one that only the API tells of may have streamed already
        old = TextPart(kind=kind, gap=listed)
    if not isinstance(old, TextPart) or old.done:
        return old, []
    if part.time and part.time.end is not None:
        whole = TextPart(kind=kind, text=part.text, done=True)
        if not part.text and not old.text:
            return whole, []
        return whole, [
            agent.TextCompleted(message_id=part.message_id, part_id=part.id, kind=kind, text=part.text),
        ]
    if not listed and not part.text and not old.text:
        return TextPart(kind=kind), []  # its very beginning: nothing was missed
    if len(part.text) > len(old.text) and part.text.startswith(old.text):
        chunk = _chunk(kind, part.message_id, part.id, len(old.text), part.text[len(old.text) :])
        return TextPart(kind=kind, text=part.text), [chunk]
    return old, []


def _delta(state: BridgeState, frame: frames.PartDelta) -> Result:
    message = state.messages.get(frame.message_id)
    part = message.parts.get(frame.part_id) if message else None
    if message is None or not isinstance(part, TextPart) or part.done or part.gap or frame.field != "text":
        return state, []
    chunk = _chunk(part.kind, frame.message_id, frame.part_id, len(part.text), frame.delta)
    part = TextPart(kind=part.kind, text=part.text + frame.delta)
    return state.with_message(frame.message_id, message.with_part(frame.part_id, part)), [chunk]


def _tool(old: PartState | None, part: frames.Part, now: frames.ToolState) -> tuple[PartState, list[Item]]:
    output = now.output
    if output is None:
        running = now.metadata.get("output")
        output = running if isinstance(running, str) else None
    said = ToolUpdated(
        message_id=part.message_id,
        part_id=part.id,
        call_id=part.call_id,
        tool=part.tool,
        status=now.status,
        input=cutting.fields(now.input),
        output=None if output is None else cutting.tail(output, limits.TOOL_OUTPUT_CHARS),
        title=now.title,
        error=now.error,
        metadata=cutting.fields({key: value for key, value in now.metadata.items() if key != "output"}),
        started_ms=now.time.start,
        ended_ms=now.time.end,
    )
    if isinstance(old, ToolPart) and (old.done or old.said == said or _RANK[now.status] < _RANK[old.said.status]):
        return old, []
    return ToolPart(said=said), [said]


# -- small things


def _chunk(kind: agent.TextKind, message_id: str, part_id: str, offset: int, text: str) -> Chunk:
    return Chunk(kind=kind, delta=Delta(message_id=message_id, part_id=part_id, offset=offset, text=text))


def _tokens(counts: frames.TokenCounts) -> Tokens:
    return Tokens(
        input=int(counts.input or 0),
        output=int(counts.output or 0),
        reasoning=int(counts.reasoning or 0),
        cache_read=int(counts.cache.read or 0),
        cache_write=int(counts.cache.write or 0),
    )


def _error(error: frames.Error) -> AgentError:
    return AgentError(name=error.name, message=error.data.message, status=error.data.status_code)
