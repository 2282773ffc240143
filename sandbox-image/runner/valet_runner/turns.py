"""A turn, and what it came to. Pure: the bridge asks, the answer depends on what was seen alone."""

import msgspec
from valet_protocol.events import facts
from valet_protocol.events.agent import AgentError, ReviewCompleted, TurnEnded, TurnStatus

from valet_runner import limits, reviews
from valet_runner.bridge_state import BridgeState
from valet_runner.prompt_parts import InputPart


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A model that could not answer."""

    model: str
    error: AgentError


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt given to OpenCode while the turn ran."""

    prompt_id: str
    message_id: str
    """OpenCode's id of it."""
    parts: list[InputPart]
    taken: bool = False
    """Whether OpenCode is known to have it."""
    repeated: bool = False
    """Whether it was given once more because OpenCode went idle without answering it."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn."""

    fact: facts.TurnDispatched
    """What was dispatched."""
    user_message: str = ""
    """OpenCode's id of the prompt; empty before it has one."""
    began: float
    """When the prompt was handed to OpenCode, seconds of a monotonic clock."""
    first_token: float | None = None
    """When the first text or reasoning streamed, likewise."""
    parts: list[InputPart] = []
    """The prompt and its attachments, as OpenCode takes them."""
    tried: tuple[Tried, ...] = ()
    """Models that could not answer, in order."""
    continuing: bool = False
    """Whether the present try goes on with what a failed one has left."""
    giving_up: AgentError | None = None
    """Why OpenCode is made to stop trying the present model, once it is."""
    steered: tuple[Steered, ...] = ()
    """Prompts that came while it ran."""
    interrupted: bool = False
    """Whether its end was asked for."""
    failure: AgentError | None = None
    """Why it cannot go on, where OpenCode itself does not say: it died, or did not take the prompt."""
    review: ReviewCompleted | None = None
    """The review, where no model need be asked for one."""
    misread: tuple[str, ...] = ()
    """Answers to a review that could not be read, oldest first."""
    refused: AgentError | None = None
    """OpenCode's refusal of a command, where its stream does not give a better reason."""
    lost: bool = False
    """Whether OpenCode died under it."""
    renewed: bool = False
    """Whether another OpenCode has it because one broke it off."""

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.fact.turn_id

    @property
    def attempt(self) -> int:
        """Which try this is, counted from 0: each has message ids of its own."""
        return len(self.tried) + self.renewed

    @property
    def model(self) -> str:
        """The model that has it."""
        return chain(self.fact)[len(self.tried)]


def chain(fact: facts.TurnDispatched) -> list[str]:
    """The models to try, in order, each once."""
    return list(dict.fromkeys([fact.model, *fact.fallbacks]))


def prompts(fact: facts.TurnDispatched) -> list[str]:
    """The prompts of a turn."""
    return fact.prompt_ids or [fact.prompt_id]


def settled(state: BridgeState, turn: Turn) -> bool:
    """Whether an idle conversation has said all of the turn.

    Idle comes before the last message is whole (after an abort), and twice after an error; an unknown agent gives
    an error and no message at all. A prompt that came meanwhile is answered in the same run, unless that breaks off.
    """
    last = state.last
    if last is None:  # an abort that nobody asked for may be the last word of the turn before
        return state.error is not None and broken_off(state, turn) is None
    if not last.reported:
        return False
    broken = last.error is not None or state.error is not None or turn.interrupted or turn.giving_up is not None
    return broken or (state.answered and all(steered.taken for steered in turn.steered))


def unanswered(state: BridgeState, turn: Turn) -> Steered | None:
    """The steering prompt that an idle conversation has passed over, if it has."""
    if not turn.steered or state.answered or not turn.steered[-1].taken or turn.steered[-1].repeated:
        return None
    return turn.steered[-1]


def error(state: BridgeState, turn: Turn) -> AgentError | None:
    """Why the present try failed, in OpenCode's words. An error is its own only if the last message has it, or if
    there is no message: a context overflow, for one, is compacted away and the turn goes on."""
    last = state.last
    if last is None:
        return state.error or turn.refused
    if last.error is None and last.finish is None:
        return state.error
    return last.error


def broken_off(state: BridgeState, turn: Turn) -> AgentError | None:
    """OpenCode's words, where it has broken the turn off although nobody asked for that.

    An abort that hits OpenCode while it sets itself up for its first prompt stays in that set-up, which then breaks off
    every prompt (seen with 1.18.33): "All fibers interrupted", or an abort that nobody has sent.
    """
    if turn.interrupted or turn.lost or turn.failure is not None or turn.giving_up is not None:
        return None
    why = error(state, turn)
    return why if why is not None and (why.name == _ABORTED or _BROKEN in why.message) else None


def left_something(state: BridgeState, turn: Turn) -> bool:
    """Whether the present try has said or done anything. Taking it back would take back prompts that steered it,
    too."""
    steered = any(steered.message_id > state.since for steered in turn.steered)
    return steered or any(message.spoke for message in state.own.values())


def review(state: BridgeState, turn: Turn) -> ReviewCompleted | AgentError:
    """What a review came to."""
    return turn.review or reviews.read(turn.turn_id, _said(state), turn.misread)


def second_ask(state: BridgeState, turn: Turn) -> str | None:
    """What the agent of a review is asked when its answer cannot be read; none when that is the turn's end."""
    if turn.fact.kind != "review" or len(turn.misread) + 1 >= limits.REVIEW_ASKS or state.last is None:
        return None
    if turn.interrupted or turn.lost or turn.failure or error(state, turn):
        return None
    return reviews.second_ask(_said(state)) if isinstance(review(state, turn), AgentError) else None


def misread(state: BridgeState, turn: Turn) -> Turn:
    """The turn with the present answer kept as one that could not be read."""
    return msgspec.structs.replace(turn, misread=(*turn.misread, *_said(state)[-1:]))


def _said(state: BridgeState) -> list[str]:
    """What the agent has said in the present try, a text for each of its messages."""
    return [text for _, message in sorted(state.own.items()) if (text := message.text)]


def outcome(state: BridgeState, turn: Turn, now: float) -> TurnEnded:
    """What the turn came to."""
    status, why = _verdict(state, turn)
    return TurnEnded(
        turn_id=turn.turn_id,
        status=status,
        error=_with_chain(turn, why) if status == "failed" and why else why,
        cost=state.cost,
        tokens=state.tokens,
        duration_ms=round((now - turn.began) * 1000),
        first_token_ms=None if turn.first_token is None else round((turn.first_token - turn.began) * 1000),
    )


def unaccounted(turn: Turn) -> TurnEnded:
    """The end of a turn of which it cannot be said what it came to: the runner is at fault."""
    message = "The runner failed as it ended the turn; its log says why. What the agent did is in the workspace."
    return TurnEnded(turn_id=turn.turn_id, status="failed", error=AgentError(name="runner_failed", message=message))


def _verdict(state: BridgeState, turn: Turn) -> tuple[TurnStatus, AgentError | None]:
    if turn.interrupted or turn.lost:
        return "interrupted", turn.failure
    if turn.failure is not None:
        return "failed", turn.failure
    if why := broken_off(state, turn):
        return "failed", msgspec.structs.replace(
            _BROKEN_OFF, message=f"{_BROKEN_OFF.message} (OpenCode: {why.message})"
        )
    if why := error(state, turn):
        return "failed", why
    if turn.fact.kind == "review" and isinstance(reviewed := review(state, turn), AgentError):
        return "failed", reviewed
    if state.last is None and turn.review is None:
        return "failed", AgentError(
            name="no_answer",
            message="OpenCode ended the turn without an answer or an error. Send the prompt again; if it stays so,"
            " check that the model exists.",
        )
    return "completed", None


def _with_chain(turn: Turn, why: AgentError) -> AgentError:
    """The last error, with every model that was tried and its reason."""
    if not turn.tried:
        return why
    reasons = [f"{tried.model}: {tried.error.message}" for tried in turn.tried]
    return msgspec.structs.replace(why, message="; ".join([*reasons, f"{turn.model}: {why.message}"]))


_ABORTED = "MessageAbortedError"
_BROKEN = "All fibers interrupted"
_BROKEN_OFF = AgentError(
    name="broken_off",
    message="OpenCode broke the turn off, which nobody had asked for. It is being replaced; send the prompt again.",
)


def leaves_opencode_broken(ended: TurnEnded) -> bool:
    """Whether OpenCode would break off every further prompt as well, so that only another OpenCode can answer."""
    return ended.error is not None and ended.error.name == _BROKEN_OFF.name
