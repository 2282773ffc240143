"""From a decision to an event of the log: its id and the turn it belongs to. Pure.

Every fact's id is derived from what it decides, never drawn: a retry after a crash, by whoever, is the same event.
"""

import hashlib

import msgspec
from valet_protocol.catalogue import type_of
from valet_protocol.codec import new_event
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import derived_id

from valet_session_ledger.state import SessionState


def stamp(session_id: str, state: SessionState | None, data: Data, now_ms: int) -> Event:
    """The event that says `data` of a session whose state is `state`."""
    return new_event(
        data,
        id=derived_id(session_id, type_of(data).type, _cause(state, data)),
        session_id=session_id,
        now_ms=now_ms,
        turn=_turn(state, data),
    )


def _cause(state: SessionState | None, data: Data) -> str:
    match data:
        case facts.SandboxRequested() | facts.RunnerAttached():
            return str(data.epoch)
        case facts.SandboxReleaseRequested():
            return data.reason
        case facts.PromptAccepted() | facts.PromptWithdrawn():
            return data.prompt_id
        case facts.TurnDispatched() | facts.TurnInterruptRequested() | facts.TurnInterrupted():
            return data.turn_id
        case facts.PromptSteered():
            return f"{data.turn_id} {data.prompt_id}"
        case facts.QuestionAnswered():
            return data.question_id
        case facts.CommandRequested() | facts.CommandTimedOut() | facts.CompletionRequested():
            return data.request_id
        case facts.ChildRequested():
            return data.child_id
        case facts.ChildChanged():
            return f"{data.child_id} {data.child_seq} {data.change}"
        case facts.ParentTold():
            return str(data.child_seq)
        case facts.EventImported():
            return str(data.source_seq)
        case facts.ShareLinkCreated() | facts.ShareLinkRevoked():
            return data.link_id
        case (
            facts.PromptEdited()
            | facts.QueueReordered()
            | facts.SessionRenamed()
            | facts.PolicyChanged()
            | facts.ParticipantAdded()
            | facts.ParticipantRemoved()
        ):
            # may be decided again and again, the same or another: it is this one, after that fact
            said = hashlib.sha256(msgspec.json.encode(data)).hexdigest()
            return f"{0 if state is None else state.fact_seq} {said}"
        case _:
            return ""  # at most one of its type in a session


def _turn(state: SessionState | None, data: Data) -> str | None:
    match data:
        case facts.TurnDispatched() | facts.TurnInterruptRequested() | facts.TurnInterrupted() | facts.PromptSteered():
            return data.turn_id
        case facts.ChildRequested() | facts.CompletionRequested() if state is not None and state.turn is not None:
            return state.turn.turn_id
        case facts.QuestionAnswered() if state is not None:
            return next((q.turn_id for q in state.questions if q.question_id == data.question_id), None)
        case _:
            return None
