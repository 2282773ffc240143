"""Which prompt has its turn, which goes into the running one, and when a turn is over that nobody ends. Pure."""

from valet_protocol.events import facts
from valet_protocol.ids import derived_id

from valet_session_ledger import limits
from valet_session_ledger.state import ActiveTurn, QueuedPrompt, SessionState


def dispatched(state: SessionState, now_ms: int) -> facts.TurnDispatched | None:
    """The next turn, if nothing is in its way."""
    if not _may_dispatch(state) or not state.queue:
        return None
    prompts = _together(state.queue)
    if prompts[0].mode == "collect" and now_ms < _collected_ms(prompts):
        return None
    first = prompts[0]
    return facts.TurnDispatched(
        turn_id=derived_id(state.session_id, "turn", first.prompt_id),
        prompt_id=first.prompt_id,
        prompt_ids=[prompt.prompt_id for prompt in prompts] if len(prompts) > 1 else [],
        kind=first.kind,
        content="\n\n".join(prompt.content for prompt in prompts),
        model=first.model,
        fallbacks=list(first.fallbacks),
        variant=first.variant,
        attachments=[attachment for prompt in prompts for attachment in prompt.attachments],
        author=first.author,
        author_name=first.author_name,
        author_email=first.author_email,
        channel=first.channel,
        steered=first.steered,
    )


def dispatch_due(state: SessionState) -> int | None:
    """When prompts that are being collected have their turn; none when nothing is."""
    if not _may_dispatch(state) or not state.queue or state.queue[0].mode != "collect":
        return None
    return _collected_ms(_together(state.queue))


def _may_dispatch(state: SessionState) -> bool:
    return state.phase == "ready" and state.turn is None and not state.commands and not state.late


def _together(queue: tuple[QueuedPrompt, ...]) -> list[QueuedPrompt]:
    """The first prompt, and those collected with it: alike in all that a turn has one of."""
    first, *others = queue
    taken = [first]
    if first.mode != "collect":
        return taken
    size, attachments = len(first.content), len(first.attachments)
    for prompt in others:
        size += len(prompt.content)
        attachments += len(prompt.attachments)
        if _alike(prompt) != _alike(first) or size > limits.COLLECTED_CHARACTERS:
            break
        if attachments > limits.COLLECTED_ATTACHMENTS:
            break
        taken.append(prompt)
    return taken


def _alike(prompt: QueuedPrompt) -> tuple[object, ...]:
    of_an_agent = prompt.sender is not None
    return (prompt.mode, prompt.author, of_an_agent, prompt.channel, prompt.model, prompt.variant, prompt.fallbacks)


def _collected_ms(prompts: list[QueuedPrompt]) -> int:
    accepted = [prompt.accepted_ms for prompt in prompts]
    return min(max(accepted) + limits.COLLECT_QUIET_MS, min(accepted) + limits.COLLECT_LONGEST_MS)


def steered(state: SessionState) -> list[facts.PromptSteered]:
    """Prompts that go into the running turn: of its conversation, while it takes some."""
    turn = state.turn
    if turn is None or not _is_running(state, turn) or turn.kind != "prompt" or turn.interrupt_due_ms is not None:
        return []
    return [
        facts.PromptSteered(
            turn_id=turn.turn_id,
            prompt_id=prompt.prompt_id,
            content=prompt.content,
            attachments=list(prompt.attachments),
            author=prompt.author,
        )
        for prompt in state.queue
        if prompt.mode == "steer"
        and prompt.channel == turn.origin.channel
        and not prompt.steered
        and turn.turn_id not in (prompt.missed, prompt.refused)
    ]


def interrupt(state: SessionState, now_ms: int, seen_ms: int = 0) -> facts.TurnInterruptRequested | None:
    """The end of a running turn, asked of its runner: for a prompt it could not take, or because it is silent."""
    turn = state.turn
    if turn is None or not _is_running(state, turn) or turn.interrupt_due_ms is not None:
        return None
    if any(prompt.refused == turn.turn_id for prompt in state.queue):
        return facts.TurnInterruptRequested(turn_id=turn.turn_id, by="", reason="steer")
    due = silent_due(state, seen_ms)
    if due is not None and due <= now_ms:
        return facts.TurnInterruptRequested(turn_id=turn.turn_id, by="", reason="silent")
    return None


def silent_due(state: SessionState, seen_ms: int = 0) -> int | None:
    """When the runner that has the turn is taken to hang; none while it is not its move.

    `seen_ms`: since when the log is seen without a break. Before that it may have spoken unheard.
    """
    turn = state.turn
    if turn is None or state.phase != "ready" or turn.interrupt_due_ms is not None:
        return None
    if any(question.parked is None for question in state.questions):
        return None
    return max(turn.since_ms, state.heard_ms + turn.behind_ms, seen_ms) + limits.SILENT_MS


def never_begun(state: SessionState, now_ms: int, seen_ms: int = 0) -> bool:
    """Whether a runner has been given a turn and has neither begun it nor said anything."""
    due = silent_due(state, seen_ms)
    return state.turn is not None and state.turn.started_epoch is None and due is not None and due <= now_ms


def interrupted(state: SessionState, now_ms: int) -> facts.TurnInterrupted | None:
    """The end of a turn whose runner can not, or does not, end it."""
    turn = state.turn
    if turn is None:
        return None
    if turn.started_epoch is not None and (
        state.phase in ("lost", "hibernated") or turn.started_epoch < state.requested_epoch
    ):
        why = "the platform was stopped" if state.phase == "hibernated" else "its sandbox ended unexpectedly"
        if state.phase == "lost" and state.detail:
            why += f" ({state.detail})"
        return facts.TurnInterrupted(
            turn_id=turn.turn_id,
            reason="runner_lost",
            detail=f"The turn did not finish: {why}. The workspace is kept; {_next_step(state)} to go on.",
        )
    if turn.started_epoch is None and turn.losses >= limits.TURN_LOSSES:
        return facts.TurnInterrupted(
            turn_id=turn.turn_id,
            reason="runner_lost",
            detail=f"The sandbox ended {turn.losses} times before the turn could begin ({state.detail}).",
        )
    if turn.interrupt_due_ms is None or now_ms < turn.interrupt_due_ms:
        return None
    if turn.interrupt_reason == "silent":
        return facts.TurnInterrupted(
            turn_id=turn.turn_id,
            reason="silent",
            detail="The agent said nothing for minutes and did not answer when it was stopped, so its sandbox is being"
            f" replaced. The workspace is kept; {_next_step(state)} to go on.",
        )
    return facts.TurnInterrupted(
        turn_id=turn.turn_id, reason="aborted", detail="The turn was stopped; its runner did not confirm it."
    )


def _next_step(state: SessionState) -> str:
    asked = any(question.kind == "question" for question in state.questions)
    return "answer its question" if asked else "send the prompt again"


def _is_running(state: SessionState, turn: ActiveTurn) -> bool:
    return state.phase == "ready" and turn.started_epoch is not None and turn.started_epoch == state.attached_epoch
