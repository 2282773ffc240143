"""Folding commands that a runner carries out between turns. Pure."""

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import limits
from valet_session_ledger.digests import command_digest
from valet_session_ledger.evolve_turns import Folds
from valet_session_ledger.state import CommandReceipt, PendingCommand, SessionState


def _command_requested(state: SessionState, event: Event, data: facts.CommandRequested) -> SessionState:
    command = PendingCommand(request_id=data.request_id, command=data.command, due_ms=data.due_ms)
    receipt = CommandReceipt(
        request_id=data.request_id,
        digest=command_digest(data.command, data.message_id, data.channel),
        seq=event.seq,
    )
    return replace(
        state,
        commands=(*state.commands, command),
        command_receipts=(*state.command_receipts, receipt)[-limits.COMMAND_RECEIPTS :],
        # somebody is there again: whatever stopped the platform is over
        hold_until_ms=None if state.phase == "hibernated" else state.hold_until_ms,
    )


def _done(state: SessionState, event: Event, data: facts.CommandTimedOut | agent.CommandCompleted) -> SessionState:
    left = tuple(command for command in state.commands if command.request_id != data.request_id)
    return state if len(left) == len(state.commands) else replace(state, commands=left)


FOLDS: Folds = {
    facts.CommandRequested: _command_requested,
    facts.CommandTimedOut: _done,
    agent.CommandCompleted: _done,
}
