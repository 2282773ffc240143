"""Taking prompts, and changing those that wait. Pure; refusals are raised."""

from collections.abc import Collection, Sequence

from valet_protocol.errors import Conflict, NotFound, TooMany, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import EditPrompt, ReorderQueue, SubmitPrompt, WithdrawPrompt

from valet_session_ledger import limits
from valet_session_ledger.digests import prompt_digest
from valet_session_ledger.evolve_turns import in_order
from valet_session_ledger.state import QueuedPrompt, Receipt, SessionState


def submit(state: SessionState, command: SubmitPrompt, earlier: Receipt | None) -> list[Data]:
    """From here on the prompt is never lost."""
    accepted = facts.PromptAccepted(
        prompt_id=command.prompt_id,
        content=command.content,
        kind=command.kind,
        mode=command.mode,
        author=command.user,
        channel=command.channel,
        model=command.model or state.model,
        fallbacks=command.fallbacks,
        variant=command.variant,
        attachments=command.attachments,
        author_name=command.author_name,
        author_email=command.author_email,
        idempotency_key=command.idempotency_key,
        sender=command.sender,
    )
    receipt = receipt_of(state, command.prompt_id) or earlier
    if receipt is not None:
        if receipt.digest != prompt_digest(accepted):
            raise reused()
        return []
    if command.kind != "prompt" and command.mode != "queue":
        raise Unprocessable(
            "mode_not_possible", f"A {command.kind} waits its turn; only prompts can steer or be collected."
        )
    check_open(state, "prompts")
    if command.sender is not None:
        check_hops(command.sender.hops)
    waiting = waiting_prompts(state)
    if len(waiting) >= limits.QUEUED_PROMPTS or _characters(waiting) + len(command.content) > limits.QUEUED_CHARACTERS:
        raise TooMany(
            "queue_full",
            f"{len(waiting)} prompts are waiting already; wait for some to finish, or stop the session.",
        )
    return [accepted]


def check_open(state: SessionState, what: str) -> None:
    """Raises `Conflict` when the session takes nothing any more, or not yet."""
    if state.phase == "terminated":
        raise Conflict("session_ended", f"The session was ended and takes no more {what}; start a new one.")
    if state.phase == "failed" or state.failure is not None:
        why = state.failure.detail if state.failure is not None else state.detail
        raise Conflict("session_failed", f"The session has failed and takes no more {what}: {why}")
    if state.import_due_ms is not None:
        raise Conflict("importing", f"The session is still being imported; it takes {what} when that is finished.")


def check_hops(hops: int) -> None:
    """Raises `TooMany` when agents have caused one another's prompts for too long without a person."""
    if hops > limits.HOPS:
        raise TooMany(
            "too_many_hops",
            f"Agents have written to each other {limits.HOPS} times in a row since a person last said something. Do not"
            " send it again: tell your person what you wanted to do and ask whether to go on.",
        )


def edit(state: SessionState, command: EditPrompt, earlier: Receipt | None) -> list[Data]:
    """Another text for a prompt that waits."""
    prompt = _waiting(state, command.prompt_id, earlier)
    if prompt.content == command.content:
        return []
    others = [other for other in waiting_prompts(state) if other.prompt_id != prompt.prompt_id]
    if _characters(others) + len(command.content) > limits.QUEUED_CHARACTERS:
        raise TooMany("queue_full", "The prompts that wait are too long together; shorten this one.")
    return [facts.PromptEdited(prompt_id=command.prompt_id, content=command.content, by=command.user)]


def withdraw(state: SessionState, command: WithdrawPrompt, earlier: Receipt | None) -> list[Data]:
    """A prompt that waits never becomes a turn."""
    receipt = receipt_of(state, command.prompt_id) or earlier
    if receipt is not None and receipt.withdrawn:
        return []
    _waiting(state, command.prompt_id, earlier)
    return [facts.PromptWithdrawn(prompt_id=command.prompt_id, by=command.user)]


def not_remembered(state: SessionState, prompt_ids: Sequence[str]) -> list[str]:
    """Those of some prompts that the state does not know: too old for its receipts, or never given to the session."""
    waiting = {prompt.prompt_id for prompt in waiting_prompts(state)}
    return [id for id in dict.fromkeys(prompt_ids) if id not in waiting and receipt_of(state, id) is None]


def reorder(state: SessionState, command: ReorderQueue, earlier: Collection[str]) -> list[Data]:
    """Another order of the prompts that wait. `earlier` are prompts the state does not remember; one that waits no more
    is passed over. Raises `NotFound` for one that was never given to the session."""
    unknown = [id for id in not_remembered(state, command.prompt_ids) if id not in earlier]
    if unknown:
        named = ", ".join(repr(id[:40]) for id in unknown[:3])
        raise NotFound("prompt_not_found", f"No prompt {named} was given to this session; nothing was changed.")
    order = in_order(state.queue, list(dict.fromkeys(command.prompt_ids)))
    if order == state.queue:
        return []
    return [facts.QueueReordered(prompt_ids=[prompt.prompt_id for prompt in order], by=command.user)]


def receipt_of(state: SessionState, prompt_id: str) -> Receipt | None:
    """The receipt of a prompt, if the state remembers it."""
    return next((receipt for receipt in reversed(state.receipts) if receipt.prompt_id == prompt_id), None)


def waiting_prompts(state: SessionState) -> tuple[QueuedPrompt, ...]:
    """Prompts without a turn, those on their way into the running one included: they may come back."""
    return state.queue if state.turn is None else (*state.turn.steering, *state.queue)


def reused() -> Unprocessable:
    """The refusal of a second, different request under an id."""
    return Unprocessable(
        "idempotency_key_reused", "This key (or id) was used before for a different request; use a new one."
    )


def _waiting(state: SessionState, prompt_id: str, earlier: Receipt | None) -> QueuedPrompt:
    for prompt in state.queue:
        if prompt.prompt_id == prompt_id:
            return prompt
    if (receipt_of(state, prompt_id) or earlier) is None:
        raise NotFound("prompt_not_found", "No prompt with this id was given to this session.")
    raise Conflict("not_waiting", "The prompt waits no more; stop its turn if it should not go on.")


def _characters(prompts: "tuple[QueuedPrompt, ...] | list[QueuedPrompt]") -> int:
    return sum(len(prompt.content) for prompt in prompts)
