"""What a session does by itself about other ones: it tells its agent of its children, and ends when that says so. Pure.

`errands` is what it has to do in the logs of others. That too is found in the state alone, so whatever is cut off is
found and done again, and what it does there is recognised when it comes twice.
"""

import msgspec
from valet_protocol.events import facts

from valet_session_ledger import limits
from valet_session_ledger.decide_prompts import waiting_prompts
from valet_session_ledger.state import News, Notice, Origin, SessionState


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """A child is to be made, with its first prompt."""

    request: facts.ChildRequested


class End(msgspec.Struct, frozen=True, kw_only=True):
    """A child is to be ended, because this session was."""

    child_id: str


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """The parent is to hear something."""

    parent: str
    news: News


Errand = Spawn | End | Tell


def errands(state: SessionState) -> list[Errand]:
    """What is to be done in other sessions' logs, in order."""
    found: list[Errand] = [Spawn(request=child.request) for child in state.children if child.request is not None]
    if ends_children(state):
        found += [End(child_id=child.session_id) for child in state.children if child.status == "going_on"]
    if state.parent is not None:
        found += [Tell(parent=state.parent, news=news) for news in state.news]
    return found


def ends_children(state: SessionState) -> bool:
    """Whether its end is its children's too: when a person or a session above it ended it. One whose agent completed
    it, or that failed, decided nothing about them."""
    return state.phase == "terminated" and state.completed is None


def completed(state: SessionState) -> facts.SessionTerminated | None:
    """The end its agent asked for, once nothing is left to do."""
    asked = state.completing
    if asked is None or state.turn is not None or state.queue or state.late or state.notices or state.commands:
        return None
    return facts.SessionTerminated(by="", completed=asked.outcome, detail=asked.summary)


def told_of_children(state: SessionState) -> list[facts.PromptAccepted]:
    """Prompts that tell the agent what became of children it wanted to hear of. They are collected: what several
    children do while it works is one turn."""
    room = limits.QUEUED_PROMPTS - len(waiting_prompts(state))
    return [_prompt(state, notice) for notice in state.notices[: max(0, room)]]


def _prompt(state: SessionState, notice: Notice) -> facts.PromptAccepted:
    child = next((item for item in state.children if item.session_id == notice.child_id), None)
    origin = Origin() if child is None else child.origin
    return facts.PromptAccepted(
        prompt_id=notice.prompt_id,
        content=_in_words(notice),
        mode="collect",
        author=origin.author or state.owner,
        author_name=origin.author_name,
        author_email=origin.author_email,
        channel=origin.channel,
        model=origin.model or state.model,
        fallbacks=list(origin.fallbacks),
        variant=origin.variant,
        sender=facts.Sender(session_id=notice.child_id, title=notice.title, hops=notice.hops),
    )


_WORDS: dict[facts.ChildChange, str] = {
    "started": "has started",
    "turn_completed": "has finished its turn",
    "turn_failed": "has failed in its turn",
    "turn_interrupted": "was interrupted in its turn",
    "completed": "is done and has ended",
    "given_up": "could not do its task and has ended",
    "failed": "has failed and takes nothing any more",
    "terminated": "was ended",
}


def _in_words(notice: Notice) -> str:
    said = f"\n\n{notice.detail}" if notice.detail else ""
    name = f'"{notice.title}" ' if notice.title else ""
    return f"[Your child session {name}({notice.child_id}) {_WORDS[notice.change]}.]{said}"
