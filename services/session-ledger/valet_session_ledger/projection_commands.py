"""Commands and their results, as rows. Pure."""

from typing import Any

from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import values
from valet_session_ledger.digests import command_digest
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import Batch, CommandRow
from valet_session_ledger.state import SessionState


def _command_requested(batch: Batch, before: SessionState, event: Event, data: facts.CommandRequested) -> None:
    _command(
        batch,
        event,
        data.request_id,
        command=data.command,
        digest=command_digest(data.command, data.message_id, data.channel),
        status="requested",
        due_ms=data.due_ms,
    )


def _command_completed(batch: Batch, before: SessionState, event: Event, data: agent.CommandCompleted) -> None:
    """The first result counts; one that comes after the time-out does not."""
    if any(command.request_id == data.request_id for command in before.commands):
        _command(
            batch,
            event,
            data.request_id,
            status="completed" if data.error is None else "failed",
            result=values.json(data.result),
            error=values.text_or_none(data.error),
        )


def _command_timed_out(batch: Batch, before: SessionState, event: Event, data: facts.CommandTimedOut) -> None:
    if any(command.request_id == data.request_id for command in before.commands):
        _command(batch, event, data.request_id, status="timed_out", error=values.text(data.detail))


def _command(batch: Batch, event: Event, request_id: str, **said: Any) -> None:
    row = CommandRow(
        session_id=event.session_id,
        request_id=values.identifier(request_id),
        first_seq=event.seq,
        seq=event.seq,
        **said,
    )
    batch.merge(batch.commands, (event.session_id, row.request_id), row)


PROJECTIONS: Projections = {
    facts.CommandRequested: _command_requested,
    facts.CommandTimedOut: _command_timed_out,
    agent.CommandCompleted: _command_completed,
}
