"""What follows when OpenCode has nothing more to say in a turn: its end, another question, another model, or another
OpenCode. Pure."""

import msgspec
from valet_protocol.events.agent import AgentError

from valet_runner import failover, limits, turns
from valet_runner.bridge_state import BridgeState
from valet_runner.failover import Switch
from valet_runner.turns import Turn

CONTINUATION = (
    "Your work on this was broken off by a fault of the platform. What stands above has happened: do not repeat tool"
    " calls that are done. Go on from there and finish what the person asked for."
)
"""What the agent is told by another OpenCode when the broken one has left something."""


class AskAgain(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's answer to a review cannot be read: it is asked once more, in the same conversation."""

    text: str


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """OpenCode has broken the turn off by itself: another OpenCode gets it, once."""

    error: AgentError
    """What OpenCode said."""
    start_over: bool
    """Whether the broken try left nothing, so that it is taken back and the prompt is given anew."""


Sequel = AskAgain | Renewal | Switch


def of(state: BridgeState, turn: Turn) -> Sequel | None:
    """What follows; none when that is the turn's end."""
    if ask := turns.second_ask(state, turn):
        return AskAgain(text=ask)
    return renewal(state, turn) or failover.plan(state, turn)


def renewal(state: BridgeState, turn: Turn) -> Renewal | None:
    """Whether another OpenCode gets the turn. A person's own command is not run twice, and a slash command that has
    begun cannot be gone on with."""
    why = turns.broken_off(state, turn)
    if why is None or turn.renewed or turn.fact.kind == "shell" or turn.attempt + 1 >= limits.ATTEMPTS_MAX:
        return None
    left = turns.left_something(state, turn)
    if left and turn.fact.kind == "command":
        return None
    return Renewal(error=why, start_over=not left)
