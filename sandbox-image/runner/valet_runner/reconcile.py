"""What OpenCode's API lists, as frames: after a cut of the stream, and when a turn seems to be over.

OpenCode replays nothing, so whatever the stream may have lost is read from its API and goes the same way as the
stream's own frames; the translation drops what it has already said.
"""

import asyncio
from typing import Protocol

import msgspec

from valet_runner import frames
from valet_runner.bridge_state import BridgeState


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """OpenCode's present state of a conversation."""

    statuses: dict[str, frames.Status]
    """By session; idle ones are absent."""
    children: list[frames.Session] = []
    messages: list[frames.Message] = []
    """Of the conversation and its sub-agents, those of the running turn at least."""
    questions: list[frames.QuestionAsked] = []
    permissions: list[frames.PermissionAsked] = []


class Api(Protocol):
    """What is asked of OpenCode."""

    async def statuses(self) -> dict[str, frames.Status]: ...
    async def children(self, session: str) -> list[frames.Session]: ...
    async def messages(self, session: str) -> list[frames.Message]: ...
    async def questions(self) -> list[frames.QuestionAsked]: ...
    async def permissions(self) -> list[frames.PermissionAsked]: ...


async def look(api: Api, state: BridgeState) -> Listing:
    """Read it. The status first: what a busy session lists may be old, what an idle one lists is final."""
    statuses = await api.statuses()
    messages, questions, permissions = await asyncio.gather(
        api.messages(state.root), api.questions(), api.permissions()
    )
    children: list[frames.Session] = []
    if state.children or any(part.tool == "task" for message in messages for part in message.parts):
        parents = [state.root]
        while parents:
            found = await api.children(parents.pop())
            children += found
            parents += [child.id for child in found]
        for child in children:
            messages += await api.messages(child.id)
    return Listing(
        statuses=statuses,
        children=children,
        messages=messages,
        questions=questions,
        permissions=permissions,
    )


def frames_of(listing: Listing, state: BridgeState) -> list[frames.Shape]:
    """The frames that make the state agree with the listing."""
    out: list[frames.Shape] = [frames.SessionSeen(info=child) for child in listing.children]
    for message in sorted(listing.messages, key=lambda message: message.info.id):
        info = message.info
        if info.role != "assistant" or state.floor is None or info.id <= state.floor:
            continue
        out.append(frames.MessageUpdated(info=_open(info)))
        out += [frames.PartUpdated(part=part, listed=True) for part in message.parts]
        if info.time.completed is not None:
            out.append(frames.MessageUpdated(info=info))
    asked = [*listing.questions, *listing.permissions]
    out += [ask for ask in asked if ask.id not in state.questions]
    open_ids = {ask.id for ask in asked}
    out += [
        frames.Replied(session_id=state.root, request_id=question)
        for question in state.questions
        if question not in open_ids
    ]
    for session in (state.root, *sorted(state.children)):
        status = listing.statuses.get(session, frames.Status(type="idle"))
        if status.type != "retry" or session not in state.retrying:
            out.append(frames.SessionStatus(session_id=session, status=status))
    return out


def newest_message(listing: list[frames.Message]) -> str | None:
    """The greatest message id of a conversation."""
    return max((message.info.id for message in listing), default=None)


def _open(info: frames.Info) -> frames.Info:
    """The message as it was before it was whole: its parts come first."""
    return msgspec.structs.replace(info, time=frames.Span(created=info.time.created))
