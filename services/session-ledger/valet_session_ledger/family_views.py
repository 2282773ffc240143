"""What agents see of other sessions, who reaches whom, and how a message says where it comes from. Pure."""

from collections.abc import Sequence
from typing import Literal

from valet_protocol.codec import rfc3339
from valet_protocol.requests import MessageView, SessionView
from valet_protocol.tools import sessions as tools
from valet_protocol.tools.channels import ChannelView

from valet_session_ledger import limits
from valet_session_ledger.state import DEFAULT_CHANNEL, SessionState

Relation = Literal["parent", "child", "other"]
"""What the session that says something is to the one that hears it."""


def root_of(session_id: str, ancestors: Sequence[str]) -> str:
    """The topmost session of the tree that a session belongs to."""
    return ancestors[-1] if ancestors else session_id


def reaches(state: SessionState, view: SessionView) -> bool:
    """Whether an agent may read a session and write to it."""
    if view.owner != state.owner:
        return False
    return state.orchestrator or root_of(state.session_id, state.ancestors) == root_of(view.id, view.ancestors)


def relation(state: SessionState, target: str) -> Relation:
    """What a session is to one that it writes to."""
    if target == state.parent:
        return "child"
    return "parent" if any(child.session_id == target for child in state.children) else "other"


def from_session(session_id: str, relation: Relation) -> str:
    """The line by which the agent that gets a prompt sees that no person wrote it. Nothing in it changes later: the
    same message again is the same text."""
    who = {"parent": "your parent session", "child": "your child session", "other": "another session"}[relation]
    return f"[From {who} {session_id}.]"


def title_of(prompt: str) -> str:
    """The title of a child that was given none: the beginning of its task."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= limits.TITLE_CHARACTERS else first[: limits.TITLE_CHARACTERS - 1].rstrip() + "…"


def quoted(session_id: str, messages: Sequence[MessageView], note: str) -> str:
    """Messages of a session in one text, word for word; the oldest go first when there is no room."""
    room = limits.FORWARDED_CHARACTERS
    blocks: list[str] = []
    for item in reversed(messages):
        who = _author(item) or "agent"
        text = item.text[-room:] if room > 0 else ""
        if not text:
            break
        room -= len(text)
        blocks.append(f"{who}, {item.created_at}:\n" + "\n".join(f"> {line}" for line in text.splitlines()))
    head = f"{note}\n\n" if note else ""
    return f"{head}Messages of session {session_id}:\n\n" + "\n\n".join(reversed(blocks))


def brief(view: SessionView) -> tools.SessionBrief:
    """A session in a few words."""
    return tools.SessionBrief(
        session=view.id,
        title=view.title,
        status=view.status,
        repo=view.repo,
        branch=view.branch,
        model=view.model,
        parent=view.parent,
        turns=view.turns,
        queued=len(view.queued),
        cost=view.cost,
        created_at=view.created_at,
        updated_at=view.updated_at,
    )


def report(view: SessionView, last_words: str) -> tools.SessionStatusReport:
    """How a session is doing."""
    last = view.last_turn
    how = last.status if last is not None and last.status in ("completed", "failed", "interrupted") else None
    return tools.SessionStatusReport(
        session=brief(view),
        detail=view.status_detail,
        turn_running=view.active_turn is not None,
        last_turn=how,
        last_error=None if last is None or last.error is None else last.error.message,
        open_questions=[asked.question or asked.header for item in view.questions for asked in item.questions],
        last_text=last_words[: limits.MESSAGE_CHARACTERS],
    )


def message(view: MessageView) -> tools.SessionMessage:
    """One message of a conversation."""
    return tools.SessionMessage(
        id=view.id,
        seq=view.seq,
        role=view.role,
        author=_author(view),
        text=view.text[: limits.MESSAGE_CHARACTERS],
        tools=[part.tool for part in view.parts if part.tool is not None],
        complete=view.complete,
        created_at=view.created_at,
    )


def channel(name: str, last_used_ms: int | None) -> ChannelView:
    """A channel. What its own service calls it is not known here: the title is made from its name."""
    surface, _, where = name.partition(":")
    return ChannelView(
        channel=name,
        title="the session's page" if name == DEFAULT_CHANNEL else f"{_SURFACES.get(surface, surface)} {where}".strip(),
        last_used_at=None if last_used_ms is None else rfc3339(last_used_ms),
    )


_SURFACES = {
    "web": "web",
    "cli": "command line",
    "api": "API",
    "slack": "Slack",
    "github": "GitHub",
    "linear": "Linear",
}


def _author(view: MessageView) -> str | None:
    return view.author if view.sender is None else f"session:{view.sender.session_id}"
