"""Folding prompts, the queue they wait in, and the turns they become. Pure."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec.structs import replace
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event

from valet_session_ledger import limits
from valet_session_ledger.digests import prompt_digest
from valet_session_ledger.evolve_questions import after_turn
from valet_session_ledger.state import ActiveTurn, Origin, QueuedPrompt, Receipt, SessionState

Fold = Callable[[SessionState, Event, Any], SessionState]
Folds = dict[type[Data], Fold]


def is_active(state: SessionState, turn_id: str) -> bool:
    """Whether a turn is the session's present one."""
    return state.turn is not None and state.turn.turn_id == turn_id


# -- the queue -------------------------------------------------------------------------------------------------


def _prompt_accepted(state: SessionState, event: Event, data: facts.PromptAccepted) -> SessionState:
    prompt = QueuedPrompt(
        prompt_id=data.prompt_id,
        content=data.content,
        model=data.model,
        author=data.author,
        channel=data.channel,
        mode=data.mode,
        kind=data.kind,
        fallbacks=tuple(data.fallbacks),
        variant=data.variant,
        attachments=tuple(data.attachments),
        author_name=data.author_name,
        author_email=data.author_email,
        answers=data.answers,
        sender=data.sender,
        hops=_hops(state, data),
        accepted_ms=event.time_ms,
    )
    receipt = Receipt(prompt_id=data.prompt_id, digest=prompt_digest(data), seq=event.seq)
    return replace(
        state,
        queue=_queued(state.queue, prompt),
        receipts=(*state.receipts, receipt)[-limits.RECEIPTS :],
        late=tuple(answer for answer in state.late if answer.question_id != data.answers),
        notices=tuple(notice for notice in state.notices if notice.prompt_id != data.prompt_id),
        completing=None,  # somebody wants more of it
        # a person is there again: whatever stopped the platform is over
        hold_until_ms=None if state.phase == "hibernated" and _is_a_persons(data) else state.hold_until_ms,
    )


def _hops(state: SessionState, data: facts.PromptAccepted) -> int:
    """A person's prompt begins again; a default that nobody gave does not."""
    if data.sender is not None:
        return data.sender.hops
    default = any(answer.question_id == data.answers and answer.user is None for answer in state.late)
    return state.hops if default else 0


def _is_a_persons(data: facts.PromptAccepted) -> bool:
    return data.answers is None and data.sender is None


def _queued(queue: tuple[QueuedPrompt, ...], *prompts: QueuedPrompt) -> tuple[QueuedPrompt, ...]:
    """Prompts put where they belong: behind the leading ones that come before their sort, or at the end."""
    for prompt in prompts:
        rank = _rank(prompt)
        at = len(queue)
        if rank < _LAST:
            at = next((index for index, other in enumerate(queue) if _rank(other) > rank), at)
        queue = (*queue[:at], prompt, *queue[at:])
    return queue


_LAST = 3


def _rank(prompt: QueuedPrompt) -> int:
    """What a turn gave back goes first, then answers, then what was to steer; all else as it comes."""
    if prompt.steered or prompt.missed is not None or prompt.refused is not None:
        return 0
    if prompt.answers is not None:
        return 1
    return 2 if prompt.mode == "steer" else _LAST


def _prompt_edited(state: SessionState, event: Event, data: facts.PromptEdited) -> SessionState:
    queue = tuple(
        replace(prompt, content=data.content) if prompt.prompt_id == data.prompt_id else prompt
        for prompt in state.queue
    )
    return replace(state, queue=queue)


def _prompt_withdrawn(state: SessionState, event: Event, data: facts.PromptWithdrawn) -> SessionState:
    receipts = tuple(
        replace(receipt, withdrawn=event.seq) if receipt.prompt_id == data.prompt_id else receipt
        for receipt in state.receipts
    )
    return replace(state, queue=_without(state.queue, data.prompt_id), receipts=receipts)


def _queue_reordered(state: SessionState, event: Event, data: facts.QueueReordered) -> SessionState:
    return replace(state, queue=in_order(state.queue, data.prompt_ids))


def in_order(queue: tuple[QueuedPrompt, ...], prompt_ids: list[str]) -> tuple[QueuedPrompt, ...]:
    """A queue with the named prompts first, in their order; the others behind them, in theirs."""
    waiting = {prompt.prompt_id: prompt for prompt in queue}
    named = [waiting.pop(prompt_id) for prompt_id in prompt_ids if prompt_id in waiting]
    return (*named, *waiting.values())


def _without(queue: tuple[QueuedPrompt, ...], *prompt_ids: str) -> tuple[QueuedPrompt, ...]:
    return tuple(prompt for prompt in queue if prompt.prompt_id not in prompt_ids)


# -- the turn --------------------------------------------------------------------------------------------------


def _turn_dispatched(state: SessionState, event: Event, data: facts.TurnDispatched) -> SessionState:
    ids = data.prompt_ids or [data.prompt_id]
    turn = ActiveTurn(
        turn_id=data.turn_id,
        prompt_id=data.prompt_id,
        more=tuple(prompt_id for prompt_id in ids if prompt_id != data.prompt_id),
        kind=data.kind,
        origin=Origin(
            author=data.author,
            author_name=data.author_name,
            author_email=data.author_email,
            channel=data.channel,
            model=data.model,
            fallbacks=tuple(data.fallbacks),
            variant=data.variant,
        ),
        since_ms=event.time_ms,
    )
    hops = max((prompt.hops for prompt in state.queue if prompt.prompt_id in ids), default=0)
    return replace(state, queue=_without(state.queue, *ids), turn=turn, turns=state.turns + 1, hops=hops)


def _turn_started(state: SessionState, event: Event, data: agent.TurnStarted) -> SessionState:
    turn = state.turn
    if turn is None or turn.turn_id != data.turn_id or turn.started_epoch == event.epoch:
        return state
    # it began after it was dispatched: a clock that says otherwise is behind
    behind = max(0, turn.since_ms - event.time_ms)
    return replace(state, turn=replace(turn, started_epoch=event.epoch, behind_ms=behind), heard_ms=event.time_ms)


def _interrupt_requested(state: SessionState, event: Event, data: facts.TurnInterruptRequested) -> SessionState:
    if state.turn is None or not is_active(state, data.turn_id):
        return state
    due = event.time_ms + limits.INTERRUPT_DEADLINE_MS
    turn = replace(state.turn, interrupt_due_ms=due, interrupt_seq=event.seq, interrupt_reason=data.reason)
    return replace(state, turn=turn)


def _turn_ended(state: SessionState, event: Event, data: agent.TurnEnded) -> SessionState:
    return _over(state, lost=False) if is_active(state, data.turn_id) else state


def _turn_interrupted(state: SessionState, event: Event, data: facts.TurnInterrupted) -> SessionState:
    if not is_active(state, data.turn_id):
        return state
    after = _over(state, lost=data.reason in ("runner_lost", "silent"))
    if data.reason == "silent" and after.phase == "ready":
        # a runner that does not even answer an interrupt is as good as gone
        return replace(after, phase="lost", detail=data.detail, recover=True)
    return after


def _over(state: SessionState, *, lost: bool) -> SessionState:
    """The turn is over. What was on its way into it waits again: nobody knows whether the agent has it."""
    turn = state.turn
    assert turn is not None
    back = [replace(prompt, steered=True) for prompt in turn.steering]
    return replace(
        state,
        turn=None,
        last_turn=turn.turn_id,
        queue=_queued(state.queue, *back),
        questions=after_turn(state.questions, turn, lost=lost),
    )


# -- steering --------------------------------------------------------------------------------------------------


def _prompt_steered(state: SessionState, event: Event, data: facts.PromptSteered) -> SessionState:
    turn = state.turn
    prompt = next((item for item in state.queue if item.prompt_id == data.prompt_id), None)
    if turn is None or turn.turn_id != data.turn_id or prompt is None:
        return state
    turn = replace(turn, steering=(*turn.steering, prompt))
    hops = max(state.hops, prompt.hops) if prompt.hops else 0  # a person is there
    return replace(state, queue=_without(state.queue, data.prompt_id), turn=turn, hops=hops)


def _prompt_taken(state: SessionState, event: Event, data: agent.PromptTaken) -> SessionState:
    turn = state.turn
    if turn is None or turn.turn_id != data.turn_id:
        return state
    prompt = next((item for item in turn.steering if item.prompt_id == data.prompt_id), None)
    if prompt is None:
        return state
    left = replace(turn, steering=_without(turn.steering, data.prompt_id))
    if data.outcome == "delivered":
        return replace(state, turn=replace(left, more=(*left.more, data.prompt_id)))
    back = _returned(prompt, turn.turn_id, data.outcome)
    return replace(state, turn=left, queue=_queued(state.queue, back))


def _returned(prompt: QueuedPrompt, turn_id: str, outcome: Literal["missed", "refused"]) -> QueuedPrompt:
    return replace(prompt, missed=turn_id) if outcome == "missed" else replace(prompt, refused=turn_id)


FOLDS: Folds = {
    facts.PromptAccepted: _prompt_accepted,
    facts.PromptEdited: _prompt_edited,
    facts.PromptWithdrawn: _prompt_withdrawn,
    facts.QueueReordered: _queue_reordered,
    facts.TurnDispatched: _turn_dispatched,
    facts.TurnInterruptRequested: _interrupt_requested,
    facts.TurnInterrupted: _turn_interrupted,
    facts.PromptSteered: _prompt_steered,
    agent.TurnStarted: _turn_started,
    agent.TurnEnded: _turn_ended,
    agent.PromptTaken: _prompt_taken,
}
