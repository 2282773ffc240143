"""Prompts and the turns they become, as rows. Pure."""

from collections.abc import Callable
from typing import Any

from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger import values
from valet_session_ledger.digests import prompt_digest
from valet_session_ledger.evolve_turns import is_active
from valet_session_ledger.rows import Batch, MessageRow, PromptRow, SwitchRow, TurnRow
from valet_session_ledger.state import SessionState

Projection = Callable[[Batch, SessionState, Event, Any], None]
Projections = dict[type[Data], Projection]


def prompt_row(batch: Batch, event: Event, prompt_id: str, **said: Any) -> None:
    """What an event says of a prompt."""
    row = PromptRow(
        session_id=event.session_id,
        prompt_id=values.identifier(prompt_id),
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.merge(batch.prompts, (event.session_id, row.prompt_id), row)


# -- prompts ---------------------------------------------------------------------------------------------------


def _prompt_accepted(batch: Batch, before: SessionState, event: Event, data: facts.PromptAccepted) -> None:
    prompt_row(
        batch,
        event,
        data.prompt_id,
        content=values.text(data.content),
        author=values.text(data.author),
        kind=data.kind,
        mode=data.mode,
        channel=values.text(data.channel),
        model=values.text(data.model),
        attachments=values.json(data.attachments),
        digest=prompt_digest(data),
        status="queued",
        accepted_ms=event.time_ms,
        sender=None if data.sender is None else values.json(data.sender),
    )


def _prompt_edited(batch: Batch, before: SessionState, event: Event, data: facts.PromptEdited) -> None:
    prompt_row(batch, event, data.prompt_id, content=values.text(data.content), status="queued")


def _prompt_withdrawn(batch: Batch, before: SessionState, event: Event, data: facts.PromptWithdrawn) -> None:
    prompt_row(batch, event, data.prompt_id, status="withdrawn")


def _prompt_steered(batch: Batch, before: SessionState, event: Event, data: facts.PromptSteered) -> None:
    prompt_row(batch, event, data.prompt_id, status="steering")


def _prompt_taken(batch: Batch, before: SessionState, event: Event, data: agent.PromptTaken) -> None:
    """A prompt the running turn has taken is a message of it from here on."""
    if data.outcome == "delivered":
        prompt_row(batch, event, data.prompt_id, status="dispatched", turn_id=values.identifier(data.turn_id))
        _persons_message(batch, event, data.turn_id, data.prompt_id)


def _persons_message(batch: Batch, event: Event, turn_id: str, prompt_id: str, **said: Any) -> None:
    row = MessageRow(
        session_id=event.session_id,
        message_id=values.identifier(prompt_id),
        turn_id=values.identifier(turn_id),
        role="user",
        complete=True,
        created_ms=event.time_ms,
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.put(batch.messages, (event.session_id, row.message_id), row)


# -- turns -----------------------------------------------------------------------------------------------------


def _turn_dispatched(batch: Batch, before: SessionState, event: Event, data: facts.TurnDispatched) -> None:
    """The prompts have their turn, and become the person's messages."""
    _turn(
        batch,
        event,
        data.turn_id,
        prompt_id=values.identifier(data.prompt_id),
        kind=data.kind,
        channel=values.text(data.channel),
        model=values.text(data.model),
        status="dispatched",
    )
    prompt_ids = data.prompt_ids or [data.prompt_id]
    for place, prompt_id in enumerate(prompt_ids):
        prompt_row(batch, event, prompt_id, status="dispatched", turn_id=data.turn_id)
        _persons_message(
            batch,
            event,
            data.turn_id,
            prompt_id,
            author=values.text(data.author),
            model=values.text(data.model),
            # of several, each has its own prompt's
            text=values.text(data.content) if len(prompt_ids) == 1 else None,
            place=place or None,
        )


def _turn_started(batch: Batch, before: SessionState, event: Event, data: agent.TurnStarted) -> None:
    _turn(batch, event, data.turn_id, status="running", started_ms=event.time_ms)


def _turn_ended(batch: Batch, before: SessionState, event: Event, data: agent.TurnEnded) -> None:
    _turn(
        batch,
        event,
        data.turn_id,
        status=data.status,
        error=None if data.error is None else values.json(data.error),
        cost=values.dollars(data.cost),
        tokens=values.json(data.tokens),
        ended_ms=event.time_ms,
        first_token_ms=values.integer_or_none(data.first_token_ms),
        duration_ms=values.integer_or_none(data.duration_ms),
    )


def _turn_interrupted(batch: Batch, before: SessionState, event: Event, data: facts.TurnInterrupted) -> None:
    error = agent.AgentError(name=data.reason, message=data.detail)
    _turn(batch, event, data.turn_id, status="interrupted", error=values.json(error), ended_ms=event.time_ms)


def _turn(batch: Batch, event: Event, turn_id: str, **said: Any) -> None:
    row = TurnRow(
        session_id=event.session_id,
        turn_id=values.identifier(turn_id),
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.merge(batch.turns, (event.session_id, row.turn_id), row)


def _model_switched(batch: Batch, before: SessionState, event: Event, data: agent.ModelSwitched) -> None:
    row = SwitchRow(
        session_id=event.session_id,
        turn_id=values.identifier(data.turn_id),
        from_model=values.text(data.from_model),
        to_model=values.text(data.to_model),
        error=values.json(data.error),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.switches, (event.session_id, event.seq), row)


def _while_active(projection: Projection) -> Projection:
    """For what a runner says of a turn: nothing, unless it is the present one."""

    def guarded(batch: Batch, before: SessionState, event: Event, data: Any) -> None:
        if is_active(before, data.turn_id):
            projection(batch, before, event, data)

    return guarded


def _while_steering(batch: Batch, before: SessionState, event: Event, data: agent.PromptTaken) -> None:
    turn = before.turn
    if turn is not None and any(prompt.prompt_id == data.prompt_id for prompt in turn.steering):
        _prompt_taken(batch, before, event, data)


_OF_TURNS: Projections = {
    facts.TurnInterrupted: _turn_interrupted,
    agent.TurnStarted: _turn_started,
    agent.TurnEnded: _turn_ended,
    agent.PromptTaken: _prompt_taken,
    agent.ModelSwitched: _model_switched,
}

ANYWHERE: Projections = {
    facts.PromptAccepted: _prompt_accepted,
    facts.PromptEdited: _prompt_edited,
    facts.PromptWithdrawn: _prompt_withdrawn,
    facts.PromptSteered: _prompt_steered,
    facts.TurnDispatched: _turn_dispatched,
    **_OF_TURNS,
}
"""Of turns that another session's state knew."""

PROJECTIONS: Projections = {
    **ANYWHERE,
    **{kind: _while_active(projection) for kind, projection in _OF_TURNS.items()},
    agent.PromptTaken: _while_active(_while_steering),
}
