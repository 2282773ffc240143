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
from valet_protocol.events.envelope import Data

from valet_runner import cutting, frames, limits
from valet_runner.bridge_state import BridgeState, Chunk, Item, MessageState, PartState, TextPart, ToolPart

Result = tuple[BridgeState, list[Item]]

_RANK = {"pending": 0, "running": 1, "completed": 2, "error": 2}


def begin_turn(state: BridgeState, user_message: str) -> BridgeState:
    """The state for a new turn: earlier messages no longer matter."""
    return msgspec.structs.replace(
        state, floor=user_message, messages={}, questions={}, retrying=frozenset(), error=None, idle=False
    )


def end_turn(state: BridgeState, reason: str) -> Result:
    """Close what is open (OpenCode died, was aborted, or never finished a message) and leave the turn.

    `reason` becomes the error of tool calls that never ended. The messages stay, for the turn's account; frames
    that still come are not of any turn.
    """
    items: list[Item] = []
    for key, message in state.messages.items():
        if message.reported:
            continue
        parts: dict[str, PartState] = {}
        for part_id, part in message.parts.items():
            if isinstance(part, ToolPart) and not part.done:
                part = ToolPart(said=msgspec.structs.replace(part.said, status="error", error=reason))
                items.append(part.said)
            parts[part_id] = part
        message = msgspec.structs.replace(message, parts=parts)
        state, said = _report(state, key, message)
        items += said
    items += [agent.QuestionResolved(question_id=key, outcome="dropped") for key in state.questions]
    return msgspec.structs.replace(state, floor=None, questions={}, retrying=frozenset()), items


def after_gap(state: BridgeState) -> BridgeState:
    """The stream was cut: what was streaming has a hole now."""
    for key, message in state.messages.items():
        for part_id, part in message.parts.items():
            if isinstance(part, TextPart) and not part.done:
                message = _with_part(message, part_id, msgspec.structs.replace(part, gap=True))
        state = _with_message(state, key, message)
    return state


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
            return _session(state, info)
        case frames.SessionStatus(session_id=session, status=status):
            return _status(state, session, status)
        case frames.SessionIdle(session_id=session) if session == state.root:
            return msgspec.structs.replace(state, idle=True), []
        case frames.SessionError(session_id=session, error=error) if session == state.root and error:
            return msgspec.structs.replace(state, error=_error(error)), []
        case frames.QuestionAsked() | frames.PermissionAsked():
            return _asked(state, frame)
        case frames.Replied(request_id=request, reply=reply):
            return _resolved(state, request, "rejected" if reply == "reject" else "answered")
        case frames.QuestionRejected(request_id=request):
            return _resolved(state, request, "rejected")
        case frames.TodoUpdated(session_id=session, todos=todos) if session == state.root and state.floor:
            lines = [agent.TodoItem(content=t.content, status=t.status, priority=t.priority) for t in todos]
            return state, [agent.TodoUpdated(todos=lines)]
        case _:
            return state, []


# -- messages and parts


def _message(state: BridgeState, info: frames.Info) -> Result:
    if info.role != "assistant" or not state.knows(info.session_id) or not _of_turn(state, info.id):
        return state, []
    items: list[Item] = []
    message = state.messages.get(info.id)
    if message is None:
        model = f"{info.provider_id}/{info.model_id}" if info.provider_id and info.model_id else None
        message = MessageState(session=info.session_id, model=model)
        items.append(
            agent.MessageCreated(message_id=info.id, model=model, parent_session=_parent(state, info.session_id))
        )
    message = msgspec.structs.replace(
        message,
        cost=info.cost,
        tokens=_tokens(info.tokens),
        finish=info.finish,
        error=_error(info.error) if info.error else message.error,
    )
    if info.time.completed is not None and not message.reported:
        state, said = _report(state, info.id, message)
        return state, items + said
    return _with_message(state, info.id, message), items


def _report(state: BridgeState, key: str, message: MessageState) -> Result:
    """The message is whole: complete its text parts and say so."""
    items: list[Item] = []
    for part_id, part in message.parts.items():
        if isinstance(part, TextPart) and not part.done:
            if part.text:
                items.append(agent.TextCompleted(message_id=key, part_id=part_id, kind=part.kind, text=part.text))
            message = _with_part(message, part_id, msgspec.structs.replace(part, done=True))
    texts = [p.text for p in message.parts.values() if isinstance(p, TextPart) and p.kind == "text" and p.text]
    items.append(
        agent.MessageCompleted(
            message_id=key,
            text="\n\n".join(texts),
            finish=message.finish,
            model=message.model,
            cost=message.cost,
            tokens=message.tokens,
            error=message.error,
            parent_session=_parent(state, message.session),
        )
    )
    return _with_message(state, key, msgspec.structs.replace(message, reported=True)), items


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
    return _with_message(state, part.message_id, _with_part(message, part.id, new)), items


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
    return _with_message(state, frame.message_id, _with_part(message, frame.part_id, part)), [chunk]


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


# -- sessions


def _session(state: BridgeState, info: frames.Session) -> Result:
    if info.parent_id and state.knows(info.parent_id) and info.id not in state.children:
        return msgspec.structs.replace(state, children=state.children | {info.id}), []
    # until it has a title of its own, OpenCode gives it one with the time in it
    if info.id == state.root and info.title and info.title != state.title:
        state = msgspec.structs.replace(state, title=info.title)
        if not info.title.startswith("New session - "):
            return state, [agent.SessionTitled(title=info.title)]
    return state, []


def _status(state: BridgeState, session: str, status: frames.Status) -> Result:
    if not state.knows(session) or state.floor is None:
        return state, []
    if session == state.root:
        state = msgspec.structs.replace(state, idle=status.type == "idle")
    if status.type == "retry":
        state, items = _discard_streaming(state, session)
        state = msgspec.structs.replace(state, retrying=state.retrying | {session})
        retry = agent.StatusChanged(
            status="retrying",
            attempt=status.attempt,
            message=status.message,
            retry_at_ms=None if status.next is None else int(status.next),
        )
        return state, [*items, retry]
    if session in state.retrying:
        state = msgspec.structs.replace(state, retrying=state.retrying - {session})
        return state, [agent.StatusChanged(status="busy")] if status.type == "busy" else []
    return state, []


def _discard_streaming(state: BridgeState, session: str) -> Result:
    """A try broke off: its parts stay in OpenCode's message with no text, the next try makes new ones."""
    items: list[Item] = []
    for key, message in state.messages.items():
        if message.session != session or message.reported:
            continue
        for part_id, part in message.parts.items():
            if isinstance(part, TextPart) and not part.done:
                if part.text:
                    items.append(agent.TextCompleted(message_id=key, part_id=part_id, kind=part.kind, text=""))
                message = _with_part(message, part_id, TextPart(kind=part.kind, done=True))
        state = _with_message(state, key, message)
    return state, items


# -- questions


def _asked(state: BridgeState, frame: frames.QuestionAsked | frames.PermissionAsked) -> Result:
    if not state.knows(frame.session_id) or state.floor is None or frame.id in state.questions:
        return state, []
    kind = "permission" if isinstance(frame, frames.PermissionAsked) else "question"
    asked: Data
    if isinstance(frame, frames.PermissionAsked):
        asked = agent.QuestionAsked(
            question_id=frame.id,
            kind="permission",
            questions=[_permission_question(frame)],
            message_id=frame.tool.message_id if frame.tool else None,
            call_id=frame.tool.call_id if frame.tool else None,
            permission=frame.permission,
            patterns=frame.patterns,
        )
    else:
        asked = agent.QuestionAsked(
            question_id=frame.id,
            kind="question",
            questions=[
                agent.Question(
                    question=ask.question,
                    header=ask.header,
                    options=[agent.QuestionOption(label=o.label, description=o.description) for o in ask.options],
                    multiple=bool(ask.multiple),
                    custom=ask.custom is not False,
                )
                for ask in frame.questions
            ],
            message_id=frame.tool.message_id if frame.tool else None,
            call_id=frame.tool.call_id if frame.tool else None,
        )
    return msgspec.structs.replace(state, questions={**state.questions, frame.id: kind}), [asked]


def _permission_question(frame: frames.PermissionAsked) -> agent.Question:
    # the first option is the default when nobody answers, so it is the harmless one
    return agent.Question(
        question=f"May the agent use {frame.permission}: {', '.join(frame.patterns)}?",
        header=frame.permission,
        options=[
            agent.QuestionOption(label="reject", description="No; the turn stops"),
            agent.QuestionOption(label="once", description="Yes, this time"),
            agent.QuestionOption(label="always", description="Yes, until the agent is restarted"),
        ],
        custom=False,
    )


def _resolved(state: BridgeState, question_id: str, outcome: str) -> Result:
    if question_id not in state.questions:
        return state, []
    left = {key: kind for key, kind in state.questions.items() if key != question_id}
    resolved = agent.QuestionResolved(
        question_id=question_id, outcome="rejected" if outcome == "rejected" else "answered"
    )
    return msgspec.structs.replace(state, questions=left), [resolved]


# -- small things


def _of_turn(state: BridgeState, message_id: str) -> bool:
    return state.floor is not None and message_id > state.floor


def _parent(state: BridgeState, session: str) -> str | None:
    return None if session == state.root else session


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


def _with_message(state: BridgeState, key: str, message: MessageState) -> BridgeState:
    return msgspec.structs.replace(state, messages={**state.messages, key: message})


def _with_part(message: MessageState, key: str, part: PartState) -> MessageState:
    return msgspec.structs.replace(message, parts={**message.parts, key: part})
