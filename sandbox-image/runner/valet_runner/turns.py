"""A turn, and what it came to. Pure: the bridge asks, the answer depends on what was seen alone."""

import msgspec
from valet_protocol.events.agent import AgentError, TurnEnded, TurnStatus

from valet_runner.bridge_state import BridgeState


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn."""

    turn_id: str
    prompt_id: str
    user_message: str
    """OpenCode's id of the prompt."""
    began: float
    """When the prompt was handed to OpenCode, seconds of a monotonic clock."""
    first_token: float | None = None
    """When the first text or reasoning streamed, likewise."""
    interrupted: bool = False
    """Whether a person asked for its end."""
    failure: AgentError | None = None
    """Why it cannot go on, where OpenCode itself does not say: it died, or did not take the prompt."""
    lost: bool = False
    """Whether OpenCode died under it."""


def settled(state: BridgeState) -> bool:
    """Whether an idle conversation has said all of the turn.

    Idle comes before the last message is whole (after an abort), and twice after an error; an unknown agent gives
    an error and no message at all.
    """
    last = state.last
    return state.error is not None if last is None else last.reported


def outcome(state: BridgeState, turn: Turn, now: float) -> TurnEnded:
    """What the turn came to. An error is the turn's only if the last message has it, or if there is no message: a
    context overflow, for one, is compacted away and the turn goes on."""
    status, error = _verdict(state, turn)
    return TurnEnded(
        turn_id=turn.turn_id,
        status=status,
        error=error,
        cost=state.cost,
        tokens=state.tokens,
        duration_ms=round((now - turn.began) * 1000),
        first_token_ms=None if turn.first_token is None else round((turn.first_token - turn.began) * 1000),
    )


def _verdict(state: BridgeState, turn: Turn) -> tuple[TurnStatus, AgentError | None]:
    last = state.last
    if turn.interrupted or turn.lost:
        return "interrupted", turn.failure
    if turn.failure is not None:
        return "failed", turn.failure
    error = last.error if last is not None else state.error
    if last is not None and error is None and last.finish is None:
        error = state.error
    if error is not None:
        return ("interrupted" if error.name == "MessageAbortedError" else "failed"), error
    if last is None:
        return "failed", AgentError(
            name="no_answer",
            message="OpenCode ended the turn without an answer or an error. Send the prompt again; if it stays so,"
            " check that the model exists.",
        )
    return "completed", None
