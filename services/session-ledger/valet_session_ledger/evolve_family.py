"""Folding what a session has to do with other ones: its children, and what its parent is to be told. Pure."""

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event
from valet_protocol.ids import derived_id

from valet_session_ledger import limits
from valet_session_ledger.digests import child_digest
from valet_session_ledger.evolve_turns import Folds
from valet_session_ledger.state import ENDED, Child, Completing, News, Notice, Origin, SessionState

LAST_CHANGES: frozenset[facts.ChildChange] = frozenset(("completed", "given_up", "failed", "terminated"))
"""Changes after which a child takes nothing any more."""


def _child_requested(state: SessionState, event: Event, data: facts.ChildRequested) -> SessionState:
    child = Child(
        session_id=data.child_id,
        status="requested",
        notify=data.notify,
        origin=Origin() if state.turn is None else state.turn.origin,
        digest=child_digest(data),
        hops=state.hops + 1,
        seq=event.seq,
        request=data,
    )
    others = tuple(item for item in state.children if item.session_id != data.child_id)
    return replace(state, children=(*others, child), spawned=state.spawned + (len(others) == len(state.children)))


def _child_changed(state: SessionState, event: Event, data: facts.ChildChanged) -> SessionState:
    child = next((item for item in state.children if item.session_id == data.child_id), None)
    if child is None:
        return state
    changed = replace(
        child,
        status="ended" if data.change in LAST_CHANGES else "going_on",
        heard_seq=max(child.heard_seq, data.child_seq),
        request=None,
    )
    children = tuple(changed if item is child else item for item in state.children)
    return replace(state, children=_remembered(children), notices=_notices(state, changed, data))


def _remembered(children: tuple[Child, ...]) -> tuple[Child, ...]:
    ended = [child for child in children if child.status == "ended"]
    forgotten = {child.session_id for child in ended[: -limits.ENDED_CHILDREN]}
    return tuple(child for child in children if child.session_id not in forgotten) if forgotten else children


def _notices(state: SessionState, child: Child, data: facts.ChildChanged) -> tuple[Notice, ...]:
    """The latest change of a child takes the place of one that is not a prompt yet."""
    if not child.notify or data.change == "started" or state.phase in ENDED:
        return state.notices
    notice = Notice(
        prompt_id=derived_id(state.session_id, "child", data.child_id, data.child_seq),
        child_id=data.child_id,
        change=data.change,
        title=data.title,
        detail=data.detail,
        hops=data.hops + 1,
    )
    return (*(item for item in state.notices if item.child_id != data.child_id), notice)


def _parent_told(state: SessionState, event: Event, data: facts.ParentTold) -> SessionState:
    return replace(state, news=tuple(item for item in state.news if item.seq > data.child_seq))


def _completion_requested(state: SessionState, event: Event, data: facts.CompletionRequested) -> SessionState:
    completing = Completing(request_id=data.request_id, outcome=data.outcome, summary=data.summary, seq=event.seq)
    return replace(
        state,
        completing=completing,
        completions=(*state.completions, data.request_id)[-limits.COMPLETIONS :],
    )


def with_news(before: SessionState, after: SessionState, event: Event) -> SessionState:
    """The state after an event, with what of it a parent is to be told."""
    if before.parent is None:
        return after
    news = _news(before, after, event)
    if news is None:
        return after
    return replace(after, news=(*after.news, replace(news, hops=before.hops))[-limits.NEWS :])


def _news(before: SessionState, after: SessionState, event: Event) -> News | None:
    data, seq = event.data, event.seq
    match data:
        case facts.SessionTerminated():
            change: facts.ChildChange = "terminated"
            if data.completed is not None:
                change = "completed" if data.completed == "done" else "given_up"
            return News(seq=seq, change=change, detail=_short(data.detail))
        case facts.SessionFailed():
            return News(seq=seq, change="failed", detail=_short(data.detail))
        case _:
            pass
    if before.turn is None or after.turn is not None or before.phase in ENDED or after.completing is not None:
        return None
    turn_id = before.turn.turn_id
    match data:
        case facts.TurnInterrupted():
            return News(seq=seq, change="turn_interrupted", turn_id=turn_id, detail=_short(data.detail))
        case agent.TurnEnded(status="completed"):
            return News(seq=seq, change="turn_completed", turn_id=turn_id)
        case agent.TurnEnded():
            why = "" if data.error is None else data.error.message
            change = "turn_failed" if data.status == "failed" else "turn_interrupted"
            return News(seq=seq, change=change, turn_id=turn_id, detail=_short(why))
        case _:
            return None


def _short(text: str) -> str:
    return text[: limits.NEWS_CHARACTERS]


FOLDS: Folds = {
    facts.ChildRequested: _child_requested,
    facts.ChildChanged: _child_changed,
    facts.ParentTold: _parent_told,
    facts.CompletionRequested: _completion_requested,
}
