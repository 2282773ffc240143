"""What OpenCode says of its conversations as wholes: new ones, titles, what they are doing."""

import msgspec
from valet_protocol.events import agent

from valet_runner import frames
from valet_runner.bridge_state import BridgeState, Item, Result, TextPart


def session(state: BridgeState, info: frames.Session) -> Result:
    """A conversation was made or changed."""
    if info.parent_id and state.knows(info.parent_id) and info.id not in state.children:
        return msgspec.structs.replace(state, children=state.children | {info.id}), []
    # until it has a title of its own, OpenCode gives it one with the time in it
    if info.id == state.root and info.title and info.title != state.title:
        state = msgspec.structs.replace(state, title=info.title)
        if state.names_session and not info.title.startswith("New session - "):
            return state, [agent.SessionTitled(title=info.title)]
    return state, []


def status(state: BridgeState, session: str, status: frames.Status) -> Result:
    """A conversation, or one of its sub-agents', is busy, idle, or waits to try its provider again."""
    if not state.knows(session) or state.floor is None:
        return state, []
    if session == state.root:
        state = msgspec.structs.replace(state, idle=status.type == "idle")
    if status.type == "retry":
        state, items = _discard_streaming(state, session)
        state = msgspec.structs.replace(
            state, retrying=state.retrying | {session}, retry=status, retries=max(state.retries, status.attempt or 1)
        )
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
                message = message.with_part(part_id, TextPart(kind=part.kind, done=True))
        state = state.with_message(key, message)
    return state, items
