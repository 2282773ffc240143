"""Having something done in the sandbox between turns. Pure; refusals are raised."""

import msgspec
from valet_protocol.errors import Conflict, NotFound, TooMany, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import RequestCommand

from valet_session_ledger import limits
from valet_session_ledger.decide_prompts import check_open, reused
from valet_session_ledger.digests import command_digest
from valet_session_ledger.state import CommandReceipt, SessionState


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The message a command is about, as the read model has it."""

    message_id: str
    turn_id: str | None
    """For a person's message: the turn it is the prompt of."""
    channel: str


def request(
    state: SessionState, command: RequestCommand, now_ms: int, earlier: CommandReceipt | None, target: Target | None
) -> list[Data]:
    """What the runner is to do. `target` is the message to go back to, if there is such a one."""
    receipt = command_receipt_of(state, command.request_id) or earlier
    if receipt is not None:
        if receipt.digest != command_digest(command.command, command.message_id, command.channel):
            raise reused()
        return []
    check_open(state, "commands")
    if command.command == "revert" and command.message_id is None:
        raise Unprocessable("message_needed", "Say which message the conversation is to go back to.")
    if state.turn is not None:
        raise Conflict("turn_running", "A turn is running; wait for its end or stop it, then ask again.")
    if len(state.commands) >= limits.PENDING_COMMANDS:
        raise TooMany("too_many_commands", f"{len(state.commands)} commands wait for their result already.")
    if command.command == "revert" and target is None:
        raise NotFound("message_not_found", "The session has no message with this id.")
    return [
        facts.CommandRequested(
            request_id=command.request_id,
            command=command.command,
            message_id=None if target is None else target.message_id,
            turn_id=None if target is None else target.turn_id,
            channel=command.channel if target is None else target.channel,
            by=command.user,
            due_ms=now_ms + limits.COMMAND_DEADLINE_MS,
        )
    ]


def command_receipt_of(state: SessionState, request_id: str) -> CommandReceipt | None:
    """The receipt of a command, if the state remembers it."""
    return next((item for item in reversed(state.command_receipts) if item.request_id == request_id), None)
