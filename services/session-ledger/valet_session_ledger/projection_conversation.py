"""What the agent said and did, as rows: messages, parts, usage, diffs, to-do lists, reviews. Pure.

None of it depends on the session's state: events of another session's runner are projected in the same way.
"""

from msgspec.structs import replace
from valet_protocol.events import agent
from valet_protocol.events.envelope import Event

from valet_session_ledger import values
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import (
    Batch,
    DiffRow,
    MessageRow,
    PartRow,
    RevertRow,
    ReviewRow,
    TodoRow,
    TurnDiffRow,
    UsageRow,
)
from valet_session_ledger.state import SessionState

_SUB_AGENT = "task"
"""The agent's tool that starts sub-agents."""


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
    message_row(batch, row)


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
    message_row(batch, message)
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


def message_row(batch: Batch, row: MessageRow) -> None:
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
        conversation=_conversation(batch, event, data) if data.tool == _SUB_AGENT else None,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.parts, (event.session_id, row.message_id, row.part_id), row)


def _conversation(batch: Batch, event: Event, data: agent.ToolUpdated) -> str | None:
    """The sub-agent that a call started or had go on; once it is known a later event need not say it again."""
    found = data.metadata.get("sessionId")
    if isinstance(found, str) and found:
        return values.identifier(found)
    key = (event.session_id, values.identifier(data.message_id), values.identifier(data.part_id))
    old = batch.parts.get(key)
    return None if old is None else old.conversation


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


def _turn_changed(batch: Batch, before: SessionState, event: Event, data: agent.TurnChanged) -> None:
    row = TurnDiffRow(
        session_id=event.session_id,
        turn_id=values.identifier(data.turn_id),
        files=values.json(data.files),
        patch=values.text(data.patch),
        truncated=data.truncated,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.turn_diffs, (event.session_id, row.turn_id), row)


def _review_completed(batch: Batch, before: SessionState, event: Event, data: agent.ReviewCompleted) -> None:
    row = ReviewRow(
        session_id=event.session_id,
        turn_id=values.identifier(data.turn_id),
        summary=values.text(data.summary),
        findings=values.json(data.findings),
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.reviews, (event.session_id, row.turn_id), row)


def _reverted(batch: Batch, before: SessionState, event: Event, data: agent.ConversationReverted) -> None:
    _revert(batch, event, data.channel, values.identifier(data.message_id))


def _unreverted(batch: Batch, before: SessionState, event: Event, data: agent.ConversationUnreverted) -> None:
    _revert(batch, event, data.channel, None)


def _revert(batch: Batch, event: Event, channel: str, message_id: str | None) -> None:
    row = RevertRow(
        session_id=event.session_id,
        channel=values.text(channel),
        message_id=message_id,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.reverts, (event.session_id, event.seq), row)


def _turn_of(event: Event) -> str | None:
    return None if event.turn is None else values.identifier(event.turn)


PROJECTIONS: Projections = {
    agent.MessageCreated: _message_created,
    agent.MessageCompleted: _message_completed,
    agent.TextCompleted: _text_completed,
    agent.ToolUpdated: _tool_updated,
    agent.GitChanged: _git_changed,
    agent.TurnChanged: _turn_changed,
    agent.TodoUpdated: _todo_updated,
    agent.ReviewCompleted: _review_completed,
    agent.ConversationReverted: _reverted,
    agent.ConversationUnreverted: _unreverted,
}
