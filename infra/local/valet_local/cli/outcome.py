"""When a prompt's turn is over, and how it went. Pure."""

from typing import Literal

import msgspec
from valet_protocol.events.agent import PromptTaken, TurnEnded
from valet_protocol.events.facts import (
    PromptWithdrawn,
    SessionFailed,
    SessionTerminated,
    TurnDispatched,
    TurnInterrupted,
)

from valet_local.client.follow import Entry


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it went."""

    status: Literal["completed", "failed", "interrupted"]
    words: str = ""
    """Why, for a person; empty where there is nothing to explain."""
    ended: TurnEnded | None = None
    """The figures of a turn that its runner ended."""

    @property
    def exit_code(self) -> int:
        """What a shell is told."""
        return {"completed": 0, "failed": 1, "interrupted": 130}[self.status]


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that is waited for."""

    prompt_id: str
    turn_id: str | None = None
    """Once it has one."""


def judge(aim: Aim, entry: Entry) -> tuple[Aim, Outcome | None]:
    """What an event means for the turn that is waited for; an outcome when it is over."""
    match entry.data:
        case TurnDispatched(turn_id=turn_id) as turn if aim.prompt_id in (turn.prompt_id, *turn.prompt_ids):
            return msgspec.structs.replace(aim, turn_id=turn_id), None
        case PromptTaken(turn_id=turn_id, prompt_id=prompt_id, outcome="delivered") if prompt_id == aim.prompt_id:
            return msgspec.structs.replace(aim, turn_id=turn_id), None
        case PromptWithdrawn(prompt_id=prompt_id) if prompt_id == aim.prompt_id:
            return aim, Outcome(status="interrupted", words="the prompt was taken back")
        case TurnEnded(turn_id=turn_id) as ended if turn_id == aim.turn_id:
            words = ended.error.message if ended.error else ""
            return aim, Outcome(status=ended.status, words=words, ended=ended)
        case TurnInterrupted(turn_id=turn_id, reason=reason, detail=detail) if turn_id == aim.turn_id:
            # A runner that was lost is a failure; only a person interrupts.
            status = "interrupted" if reason in ("aborted", "terminated") else "failed"
            return aim, Outcome(status=status, words=detail)
        case SessionFailed(detail=detail):
            return aim, Outcome(status="failed", words=detail)
        case SessionTerminated():
            return aim, Outcome(status="interrupted", words="the session was ended")
        case _:
            return aim, None
