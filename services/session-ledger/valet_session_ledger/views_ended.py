"""What a turn left unfinished when it ended: nobody is writing it any more. Pure.

An agent that is killed says no last word of its messages and tool calls. So nothing about them is stored when a turn
ends: that it is over is enough to know, whenever they are read, and what a runner says of them late still counts.
"""

from msgspec import Struct
from msgspec.structs import replace
from valet_protocol.events.agent import AgentError
from valet_protocol.requests import MessageView, PartView

from valet_session_ledger.views import Record, error

INTERRUPTED = "interrupted"
"""The name of the error of what was cut off."""

_GOES_ON = ("dispatched", "running")


class Ending(Struct, frozen=True, kw_only=True):
    """That a turn is over."""

    at_ms: int | None
    why: str
    """For people; may be empty."""


def ending(turn: Record) -> Ending | None:
    """Of a row of `turns_of`; none while the turn goes on. One that never ended and is not the session's present one is
    one an import broke off in."""
    if turn["status"] in _GOES_ON and turn["active"]:
        return None
    failure = error(turn)
    return Ending(at_ms=turn["ended_ms"], why="" if failure is None else failure.message)


def message(view: MessageView, over: Ending | None) -> MessageView:
    """A message with an end, if its turn has one."""
    if over is None:
        return view
    parts = [_part(part, over) for part in view.parts]
    if view.complete:
        return replace(view, parts=parts)
    why = over.why or "The turn ended before this message was complete."
    failure = view.error or AgentError(name=INTERRUPTED, message=why)
    return replace(view, parts=parts, complete=True, error=failure)


def _part(part: PartView, over: Ending) -> PartView:
    if part.kind != "tool" or part.status not in ("pending", "running"):
        return part
    why = f"{INTERRUPTED}: {over.why or 'the turn ended before this call did.'}"
    return replace(part, status="error", error=part.error or why, ended_ms=part.ended_ms or over.at_ms)
