"""From events to rows: what each event says to the read models. Pure, and cheap: it runs for every event.

All values are absolute (never `+ 1`), so writing a row twice, or by two replicas, does no harm.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger.evolve import is_active, is_askable
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

_encode = msgspec.json.Encoder().encode
_MAX = (1 << 63) - 1
_LONGEST_ID = 200


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
        owner=_clean(state.owner),
        title=_clean(state.title),
        repo=_clean_or_none(state.repo),
        branch=_clean_or_none(state.branch),
        model=_clean(state.model),
        status=state.status,
        status_detail=_clean(state.detail),
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
        content=_clean(data.content),
        author=data.author,
        mode=data.mode,
        channel=_clean(data.channel),
        model=_clean(data.model),
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
        text=_clean(data.content),
        model=_clean(data.model),
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
            error=None if data.error is None else _json(data.error),
            cost=_cost(data.cost),
            tokens=_json(data.tokens),
            ended_ms=event.time_ms,
            first_token_ms=_int(data.first_token_ms),
            duration_ms=_int(data.duration_ms),
        )


def _turn_interrupted(batch: Batch, before: SessionState, event: Event, data: facts.TurnInterrupted) -> None:
    if is_active(before, data.turn_id):
        error = agent.AgentError(name=data.reason, message=data.detail)
        _turn(batch, event, data.turn_id, status="interrupted", error=_json(error), ended_ms=event.time_ms)


def _turn(batch: Batch, event: Event, turn_id: str, **said: Any) -> None:
    row = TurnRow(session_id=event.session_id, turn_id=turn_id, first_seq=event.seq, seq=event.seq, **said)
    batch.merge(batch.turns, (event.session_id, turn_id), row)


# -- messages --------------------------------------------------------------------------------------------------


def _message_created(batch: Batch, before: SessionState, event: Event, data: agent.MessageCreated) -> None:
    row = MessageRow(
        session_id=event.session_id,
        message_id=_id(data.message_id),
        turn_id=_turn_of(event),
        role=data.role,
        model=_clean_or_none(data.model),
        parent_session=_clean_or_none(data.parent_session),
        complete=False,
        created_ms=event.time_ms,
        first_seq=event.seq,
        seq=event.seq,
    )
    _message(batch, row)


def _message_completed(batch: Batch, before: SessionState, event: Event, data: agent.MessageCompleted) -> None:
    session_id, message_id, seq = event.session_id, _id(data.message_id), event.seq
    tokens = data.tokens
    message = MessageRow(
        session_id=session_id,
        message_id=message_id,
        turn_id=_turn_of(event),
        role="assistant",
        text=_clean(data.text),
        finish=_clean_or_none(data.finish),
        model=_clean_or_none(data.model),
        cost=_cost(data.cost),
        tokens=_json(tokens),
        error=None if data.error is None else _json(data.error),
        parent_session=_clean_or_none(data.parent_session),
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
        model=_clean_or_none(data.model),
        cost=_cost(data.cost),
        input=_count(tokens.input),
        output=_count(tokens.output),
        reasoning=_count(tokens.reasoning),
        cache_read=_count(tokens.cache_read),
        cache_write=_count(tokens.cache_write),
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
        row = msgspec.structs.replace(
            row, created_ms=min(old.created_ms, row.created_ms), complete=old.complete or row.complete
        )
    batch.merge(batch.messages, (row.session_id, row.message_id), row)


def _text_completed(batch: Batch, before: SessionState, event: Event, data: agent.TextCompleted) -> None:
    row = PartRow(
        session_id=event.session_id,
        message_id=_id(data.message_id),
        part_id=_id(data.part_id),
        kind=data.kind,
        text=_clean(data.text),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.parts, (event.session_id, row.message_id, row.part_id), row)


def _tool_updated(batch: Batch, before: SessionState, event: Event, data: agent.ToolUpdated) -> None:
    row = PartRow(
        session_id=event.session_id,
        message_id=_id(data.message_id),
        part_id=_id(data.part_id),
        kind="tool",
        tool=_clean(data.tool),
        call_id=_clean(data.call_id),
        status=data.status,
        input=_json(data.input),
        output=_clean_or_none(data.output),
        title=_clean_or_none(data.title),
        error=_clean_or_none(data.error),
        started_ms=_int(data.started_ms),
        ended_ms=_int(data.ended_ms),
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
        questions=_json(data.questions),
        due_ms=event.time_ms + round(before.policy.question_timeout_s * 1000),
        turn_id=_turn_of(event),
    )


def _question_answered(batch: Batch, before: SessionState, event: Event, data: facts.QuestionAnswered) -> None:
    _question(
        batch,
        event,
        data.question_id,
        status="answered",
        answers=_json(data.answers),
        answered_by=data.answered_by,
        answered_user=data.user,
    )


def _question_resolved(batch: Batch, before: SessionState, event: Event, data: agent.QuestionResolved) -> None:
    if any(question.question_id == data.question_id for question in before.questions):
        _question(batch, event, data.question_id, status="dropped")


def _question(batch: Batch, event: Event, question_id: str, **said: Any) -> None:
    row = QuestionRow(
        session_id=event.session_id, question_id=_id(question_id), first_seq=event.seq, seq=event.seq, **said
    )
    batch.merge(batch.questions, (event.session_id, row.question_id), row)


def _git_changed(batch: Batch, before: SessionState, event: Event, data: agent.GitChanged) -> None:
    row = DiffRow(
        session_id=event.session_id,
        base_commit=_clean_or_none(data.base_commit),
        head_commit=_clean_or_none(data.head_commit),
        branch=_clean_or_none(data.branch),
        files=_json(data.files),
        patch=_clean(data.patch),
        truncated=data.truncated,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.diffs, (event.session_id,), row)


def _todo_updated(batch: Batch, before: SessionState, event: Event, data: agent.TodoUpdated) -> None:
    row = TodoRow(session_id=event.session_id, items=_json(data.todos), first_seq=event.seq, seq=event.seq)
    batch.put(batch.todos, (event.session_id,), row)


# -- what PostgreSQL can hold ------------------------------------------------------------------------------------


def _clean(text: str) -> str:
    """PostgreSQL's text holds everything but NUL, which a command's output may well contain."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _clean_or_none(text: str | None) -> str | None:
    return None if text is None else _clean(text)


def _id(text: str) -> str:
    """Ids come from a sandbox: one too long for an index must not stop the projection."""
    return _clean(text[:_LONGEST_ID])


def _turn_of(event: Event) -> str | None:
    return None if event.turn is None else _id(event.turn)


def _int(number: int | None) -> int | None:
    return None if number is None else max(-_MAX, min(number, _MAX))


def _count(number: int) -> int:
    # sums over a session stay inside 64 bits
    return max(0, min(number, 1 << 40))


def _cost(dollars: float) -> float:
    # sums over a session stay finite
    return max(0.0, min(dollars, 1e9))


def _json(value: object) -> str:
    return _encode(value).decode()


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
