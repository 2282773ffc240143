"""When a turn goes on with the next model of its chain, and how. Pure."""

import msgspec
from valet_protocol.events.agent import AgentError

from valet_runner import limits, turns
from valet_runner.bridge_state import BridgeState
from valet_runner.turns import Turn

_NOT_THE_PROVIDERS = frozenset(
    {
        "MessageAbortedError",
        "ContextOverflowError",
        "MessageOutputLengthError",
        "StructuredOutputError",
        "ContentFilterError",
    }
)
"""OpenCode's names of errors that another model's provider would not cure. All others are taken for the provider's:
an unknown model and an error in the middle of an answer come as `UnknownError` (recorded)."""


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The next model gets the prompt."""

    from_model: str
    to_model: str
    error: AgentError
    """Why the one before could not answer."""
    start_over: bool
    """Whether the failed try left nothing, so that it is taken back and the prompt is given anew; else the next model
    is told to go on where the failed one stopped, and no tool runs twice."""


def next_model(turn: Turn) -> str | None:
    """The model that comes after the present one; none for a turn without a model."""
    left = [] if turn.fact.kind == "shell" else turns.chain(turn.fact)[len(turn.tried) + 1 :]
    return left[0] if left and turn.attempt + 1 < limits.ATTEMPTS_MAX else None


def plan(state: BridgeState, turn: Turn) -> Switch | None:
    """What follows a try that is over; none when that is the turn's end."""
    model = next_model(turn)
    if model is None or turn.interrupted or turn.lost or turn.failure is not None:
        return None
    why = turn.giving_up or turns.error(state, turn)
    if why is None or why.name in _NOT_THE_PROVIDERS or _is_ours(state, turn):
        return None
    return Switch(from_model=turn.model, to_model=model, error=why, start_over=not turns.left_something(state, turn))


def gives_up(state: BridgeState, turn: Turn, now_ms: int) -> AgentError | None:
    """Why OpenCode is to stop trying the present model again; none while it may, or nothing comes after."""
    retry = state.retry
    if retry is None or turn.giving_up or turn.interrupted or turn.lost or next_model(turn) is None:
        return None
    too_long = retry.next is not None and retry.next - now_ms > limits.RETRY_WAIT_MAX * 1000
    if state.retries < limits.RETRIES_BEFORE_SWITCH and not too_long:
        return None
    return AgentError(name="provider_unavailable", message=retry.message or "the provider was to be tried again")


def continuation(switch: Switch) -> str:
    """What the next model is told when the failed one has left something."""
    return (
        f"The model that worked on this so far ({switch.from_model}) became unavailable in the middle of its work"
        " and you take its place. What stands above has happened: do not repeat tool calls that are done. Go on from"
        " there and finish what the person asked for."
    )


def _is_ours(state: BridgeState, turn: Turn) -> bool:
    """Whether a slash command was not even begun: no model can cure that."""
    return turn.fact.kind == "command" and state.last is None
