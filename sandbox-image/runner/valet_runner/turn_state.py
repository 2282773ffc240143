"""The state at the turning points of a turn: begin, another try, a steering prompt, a cut of the stream, end."""

import msgspec
from valet_protocol.events import agent

from valet_runner import frames
from valet_runner.bridge_state import BridgeState, Item, PartState, Result, TextPart, ToolPart
from valet_runner.translate import report


def of_conversation(state: BridgeState, session: frames.Session, *, names_session: bool) -> BridgeState:
    """The state for a conversation: events of any other are nobody's from here on."""
    if session.id == state.root:
        return state
    return BridgeState(root=session.id, title=session.title, names_session=names_session)


def begin_turn(state: BridgeState, user_message: str) -> BridgeState:
    """The state for a new turn: earlier messages no longer matter."""
    return BridgeState(
        root=state.root,
        children=state.children,
        title=state.title,
        names_session=state.names_session,
        floor=user_message,
        since=user_message,
        asked=user_message,
    )


def next_try(state: BridgeState, user_message: str) -> BridgeState:
    """The state for another model's try: how the one before ended is no longer the turn's end."""
    return msgspec.structs.replace(
        state,
        since=user_message,
        asked=user_message,
        retrying=frozenset(),
        retry=None,
        retries=0,
        error=None,
        idle=False,
    )


def asked(state: BridgeState, user_message: str) -> BridgeState:
    """One more user message that is to be answered before the turn ends."""
    return msgspec.structs.replace(state, asked=max(state.asked, user_message))


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
        state, said = report(state, key, message)
        items += said
    items += [agent.QuestionResolved(question_id=key, outcome="dropped") for key in state.questions]
    return msgspec.structs.replace(state, floor=None, questions={}, retrying=frozenset()), items


def after_gap(state: BridgeState) -> BridgeState:
    """The stream was cut: what was streaming has a hole now."""
    for key, message in state.messages.items():
        for part_id, part in message.parts.items():
            if isinstance(part, TextPart) and not part.done:
                message = message.with_part(part_id, msgspec.structs.replace(part, gap=True))
        state = state.with_message(key, message)
    return state
