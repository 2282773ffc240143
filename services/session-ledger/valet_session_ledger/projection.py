"""From events to rows: what each event says to the read models. Pure, and cheap: it runs for every event.

All values are absolute (never `+ 1`), so writing a row twice, or by two replicas, does no harm.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger import values
from valet_session_ledger.evolve import is_active, is_askable, question_due_ms
from valet_session_ledger.react import is_at_rest, next_due
from valet_session_ledger.rows import (
    Batch,
    DiffRow,
    MessageRow,
    PartRow,
    PromptRow,
    QuestionRow,
    SessionRow,
    StateRow,
    TodoRow,
    Touched,
    TurnRow,
    UsageRow,
)
from valet_session_ledger.state import SessionState, pack, prompt_digest


def project(batch: Batch, before: SessionState, after: SessionState, event: Event) -> None:
    """Add what an event says to the batch. `before` and `after` are the states around it."""
    projection = _PROJECTIONS.get(type(event.data))
    if projection is not None:
        projection(batch, before, event, event.data)
    if before.turn is not None and after.turn is None:
        for question in before.questions:
            _question(batch, event, question.question_id, status="dropped")
    if before.queue and not after.queue and after.ended_seq == event.seq:
        for prompt in before.queue:
            row = PromptRow(
                session_id=event.session_id,
                prompt_id=prompt.prompt_id,
                status="dropped",
                first_seq=event.seq,
                seq=event.seq,
            )
            batch.merge(batch.prompts, (event.session_id, prompt.prompt_id), row)


def session_row(touched: Touched) -> SessionRow:
    """The row of a session in the state it is in."""
    state = touched.state
    return SessionRow(
        session_id=state.session_id,
        first_seq=0,
        seq=touched.seq,
        owner=values.text(state.owner),
        title=values.text(state.title),
        repo=values.text_or_none(state.repo),
        branch=values.text_or_none(state.branch),
        model=values.text(state.model),
        status=state.status,
        status_detail=values.text(state.detail),
        epoch=state.requested_epoch,
        turns=state.turns,
        active_turn=state.turn.turn_id if state.turn is not None else None,
        last_turn=state.last_turn,
        created_ms=state.created_ms,
        updated_ms=touched.updated_ms,
        next_due_ms=next_due(state),
        at_rest=is_at_rest(state),
    )


def state_row(touched: Touched) -> StateRow:
    """The snapshot of a session."""
    return StateRow(session_id=touched.state.session_id, seq=touched.state_seq, state=pack(touched.state))


# -- prompts and turns -----------------------------------------------------------------------------------------


def _prompt_accepted(batch: Batch, before: SessionState, event: Event, data: facts.PromptAccepted) -> None:
    row = PromptRow(
        session_id=event.session_id,
        prompt_id=data.prompt_id,
        content=values.text(data.content),
        author=data.author,
        mode=data.mode,
        channel=values.text(data.channel),
        model=values.text(data.model),
        digest=prompt_digest(data.content, data.mode, data.model, data.channel),
        status="queued",
        accepted_ms=event.time_ms,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.merge(batch.prompts, (event.session_id, data.prompt_id), row)


def _turn_dispatched(batch: Batch, before: SessionState, event: Event, data: facts.TurnDispatched) -> None:
    """The prompt has its turn, and becomes the person's message."""
    session_id, seq = event.session_id, event.seq
    prompt = PromptRow(
        session_id=session_id,
        prompt_id=data.prompt_id,
        status="dispatched",
        turn_id=data.turn_id,
        first_seq=seq,
        seq=seq,
    )
    batch.merge(batch.prompts, (session_id, data.prompt_id), prompt)
    _turn(batch, event, data.turn_id, prompt_id=data.prompt_id, status="dispatched")
    message = MessageRow(
        session_id=session_id,
        message_id=data.prompt_id,
        turn_id=data.turn_id,
        role="user",
        author=data.author,
        text=values.text(data.content),
        model=values.text(data.model),
        complete=True,
        created_ms=event.time_ms,
        first_seq=seq,
        seq=seq,
    )
    batch.put(batch.messages, (session_id, data.prompt_id), message)


def _turn_started(batch: Batch, before: SessionState, event: Event, data: agent.TurnStarted) -> None:
    if is_active(before, data.turn_id):
        _turn(batch, event, data.turn_id, status="running", started_ms=event.time_ms)


def _turn_ended(batch: Batch, before: SessionState, event: Event, data: agent.TurnEnded) -> None:
    if is_active(before, data.turn_id):
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
    if is_active(before, data.turn_id):
        error = agent.AgentError(name=data.reason, message=data.detail)
        _turn(batch, event, data.turn_id, status="interrupted", error=values.json(error), ended_ms=event.time_ms)


def _turn(batch: Batch, event: Event, turn_id: str, **said: Any) -> None:
    row = TurnRow(session_id=event.session_id, turn_id=turn_id, first_seq=event.seq, seq=event.seq, **said)
    batch.merge(batch.turns, (event.session_id, turn_id), row)


# -- messages --------------------------------------------------------------------------------------------------


def _message_created(batch: Batch, before: SessionState, event: Event, data: agent.MessageCreated) -> None:
    row = MessageRow(
        session_id=event.session_id,
        message_id=values.identifier(data.message_id),
        turn_id=_turn_of(event),
        role=data.role,
        model=values.text_or_none(data.model),
        parent_session=values.text_or_none(data.parent_session),
        complete=False,
        created_ms=event.time_ms,
        first_seq=event.seq,
        seq=event.seq,
    )
    _message(batch, row)


def _message_completed(batch: Batch, before: SessionState, event: Event, data: agent.MessageCompleted) -> None:
    session_id, message_id, seq = event.session_id, values.identifier(data.message_id), event.seq
    tokens = data.tokens
    message = MessageRow(
        session_id=session_id,
        message_id=message_id,
        turn_id=_turn_of(event),
        role="assistant",
        text=values.text(data.text),
        finish=values.text_or_none(data.finish),
        model=values.text_or_none(data.model),
        cost=values.dollars(data.cost),
        tokens=values.json(tokens),
        error=None if data.error is None else values.json(data.error),
        parent_session=values.text_or_none(data.parent_session),
        complete=True,
        created_ms=event.time_ms,
        first_seq=seq,
        seq=seq,
    )
    _message(batch, message)
    usage = UsageRow(
        session_id=session_id,
        message_id=message_id,
        turn_id=_turn_of(event),
        model=values.text_or_none(data.model),
        cost=values.dollars(data.cost),
        input=values.count(tokens.input),
        output=values.count(tokens.output),
        reasoning=values.count(tokens.reasoning),
        cache_read=values.count(tokens.cache_read),
        cache_write=values.count(tokens.cache_write),
        at_ms=event.time_ms,
        first_seq=seq,
        seq=seq,
    )
    batch.put(batch.usage, (session_id, message_id), usage)
    batch.completed.append((session_id, data.message_id))


def _message(batch: Batch, row: MessageRow) -> None:
    """A message begins once, and what is complete stays so, even if a later runner tells of it again."""
    old = batch.messages.get((row.session_id, row.message_id))
    if old is not None:
        row = replace(row, created_ms=min(old.created_ms, row.created_ms), complete=old.complete or row.complete)
    batch.merge(batch.messages, (row.session_id, row.message_id), row)


def _text_completed(batch: Batch, before: SessionState, event: Event, data: agent.TextCompleted) -> None:
    row = PartRow(
        session_id=event.session_id,
        message_id=values.identifier(data.message_id),
        part_id=values.identifier(data.part_id),
        kind=data.kind,
        text=values.text(data.text),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.parts, (event.session_id, row.message_id, row.part_id), row)


def _tool_updated(batch: Batch, before: SessionState, event: Event, data: agent.ToolUpdated) -> None:
    row = PartRow(
        session_id=event.session_id,
        message_id=values.identifier(data.message_id),
        part_id=values.identifier(data.part_id),
        kind="tool",
        tool=values.text(data.tool),
        call_id=values.text(data.call_id),
        status=data.status,
        input=values.json(data.input),
        output=values.text_or_none(data.output),
        title=values.text_or_none(data.title),
        error=values.text_or_none(data.error),
        started_ms=values.integer_or_none(data.started_ms),
        ended_ms=values.integer_or_none(data.ended_ms),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.parts, (event.session_id, row.message_id, row.part_id), row)


# -- questions, diff, to-do list -------------------------------------------------------------------------------


def _question_asked(batch: Batch, before: SessionState, event: Event, data: agent.QuestionAsked) -> None:
    if any(item.question_id == data.question_id for item in (*before.questions, *before.answers)):
        return
    _question(
        batch,
        event,
        data.question_id,
        status="open" if is_askable(before, event, data) else "dropped",
        kind=data.kind,
        questions=values.json(data.questions),
        due_ms=question_due_ms(before, event),
        turn_id=_turn_of(event),
    )


def _question_answered(batch: Batch, before: SessionState, event: Event, data: facts.QuestionAnswered) -> None:
    _question(
        batch,
        event,
        data.question_id,
        status="answered",
        answers=values.json(data.answers),
        answered_by=data.answered_by,
        answered_user=data.user,
    )


def _question_resolved(batch: Batch, before: SessionState, event: Event, data: agent.QuestionResolved) -> None:
    if any(question.question_id == data.question_id for question in before.questions):
        _question(batch, event, data.question_id, status="dropped")


def _question(batch: Batch, event: Event, question_id: str, **said: Any) -> None:
    row = QuestionRow(
        session_id=event.session_id,
        question_id=values.identifier(question_id),
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.merge(batch.questions, (event.session_id, row.question_id), row)


def _git_changed(batch: Batch, before: SessionState, event: Event, data: agent.GitChanged) -> None:
    row = DiffRow(
        session_id=event.session_id,
        base_commit=values.text_or_none(data.base_commit),
        head_commit=values.text_or_none(data.head_commit),
        branch=values.text_or_none(data.branch),
        files=values.json(data.files),
        patch=values.text(data.patch),
        truncated=data.truncated,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.diffs, (event.session_id,), row)


def _todo_updated(batch: Batch, before: SessionState, event: Event, data: agent.TodoUpdated) -> None:
    row = TodoRow(session_id=event.session_id, items=values.json(data.todos), first_seq=event.seq, seq=event.seq)
    batch.put(batch.todos, (event.session_id,), row)


def _turn_of(event: Event) -> str | None:
    return None if event.turn is None else values.identifier(event.turn)


_PROJECTIONS: dict[type[Data], Callable[[Batch, SessionState, Event, Any], None]] = {
    facts.PromptAccepted: _prompt_accepted,
    facts.TurnDispatched: _turn_dispatched,
    facts.TurnInterrupted: _turn_interrupted,
    facts.QuestionAnswered: _question_answered,
    agent.TurnStarted: _turn_started,
    agent.TurnEnded: _turn_ended,
    agent.MessageCreated: _message_created,
    agent.MessageCompleted: _message_completed,
    agent.TextCompleted: _text_completed,
    agent.ToolUpdated: _tool_updated,
    agent.QuestionAsked: _question_asked,
    agent.QuestionResolved: _question_resolved,
    agent.GitChanged: _git_changed,
    agent.TodoUpdated: _todo_updated,
}
"""Events not listed say something to the session's row only."""
