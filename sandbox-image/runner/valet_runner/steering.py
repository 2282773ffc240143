"""Prompts that come while a turn runs. Pure: what is remembered of them, and what is said when they were cut off."""

from collections.abc import Iterable

import msgspec
from valet_protocol.events import facts
from valet_protocol.events.agent import AgentError

from valet_runner import message_ids, turns
from valet_runner.turns import Steered, Turn

CUT = AgentError(
    name="steer_cut",
    message="The prompt was given to the agent during the turn before, which broke off before it answered. The agent"
    " remembers it; send it again if it is still wanted.",
)


def takes(turn: Turn | None, fact: facts.PromptSteered) -> bool:
    """Whether the running turn is the one meant, and goes on."""
    return (
        turn is not None
        and turn.turn_id == fact.turn_id
        and turn.fact.kind == "prompt"
        and bool(turn.user_message)
        and not turn.interrupted
        and not turn.lost
        and turn.failure is None
    )


def find(turn: Turn, prompt_id: str) -> Steered | None:
    """What is remembered of a prompt."""
    return next((steered for steered in turn.steered if steered.prompt_id == prompt_id), None)


def put(turn: Turn, steered: Steered) -> Turn:
    """The turn with a prompt added, or known better than before."""
    others = tuple(other for other in turn.steered if other.prompt_id != steered.prompt_id)
    return msgspec.structs.replace(turn, steered=(*others, steered))


def drop(turn: Turn, prompt_id: str) -> Turn:
    """The turn without a prompt that OpenCode did not take."""
    left = tuple(steered for steered in turn.steered if steered.prompt_id != prompt_id)
    return msgspec.structs.replace(turn, steered=left)


def asked_last(turn: Turn) -> str:
    """OpenCode's id of the newest user message of the turn."""
    return max([turn.user_message, *(steered.message_id for steered in turn.steered)])


def was_delivered(fact: facts.TurnDispatched, message_ids_seen: Iterable[str]) -> bool:
    """Whether the conversation already holds a prompt of a turn that was meant to steer an earlier one."""
    seen = list(message_ids_seen)
    return any(message_ids.belongs_to(seen_id, prompt) for prompt in turns.prompts(fact) for seen_id in seen)
