"""The decisions that no person asks for. Pure and level-triggered: only the state and the time are looked at.

So it may be evaluated at any moment, any number of times, by any number of replicas: after a crash it simply is
evaluated again, and what has been decided is not decided twice because it shows in the state.
"""

from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.ids import derived_id

from valet_session_ledger import limits
from valet_session_ledger.state import BOOTING, OpenQuestion, SessionState


def react(state: SessionState, now_ms: int) -> list[Data]:
    """The facts that are due now, in the order in which they are to be appended. Empty at rest."""
    match state.phase:
        case "terminated":
            return _wind_up(state, "terminated", "The session was ended.")
        case "failed":
            return _wind_up(state, "failed", state.detail)
        case _:
            pass
    if state.failure is not None:
        return [facts.SessionFailed(code=state.failure.code, detail=state.failure.detail)]
    interrupted = _interrupted(state, now_ms)
    decided: list[Data] = [interrupted] if interrupted else [*_answered(state, now_ms)]
    sandbox = _sandbox(state, now_ms)
    if sandbox is not None:
        decided.append(sandbox)
    dispatched = _dispatched(state)
    if dispatched is not None:
        decided.append(dispatched)
    return decided


def next_due(state: SessionState) -> int | None:
    """When `react` is to be evaluated although nothing happens (ms since 1970); none when only an event counts."""
    if state.phase in ("failed", "terminated"):
        return None
    due: list[int] = []
    if state.phase in BOOTING and state.boot_deadline_ms is not None:
        due.append(state.boot_deadline_ms)
    if _wants_sandbox(state) and state.hold_until_ms is not None:
        due.append(state.hold_until_ms)
    if state.turn is not None and state.turn.interrupt_due_ms is not None:
        due.append(state.turn.interrupt_due_ms)
    due.extend(question.due_ms for question in state.questions)
    return min(due, default=None)


def is_at_rest(state: SessionState) -> bool:
    """Whether neither time nor anything left undone by a crash can make `react` decide something."""
    return next_due(state) is None and not react(state, 0)


def _wind_up(state: SessionState, reason: "facts.EndedBy", detail: str) -> list[Data]:
    decided: list[Data] = []
    if state.turn is not None:
        decided.append(facts.TurnInterrupted(turn_id=state.turn.turn_id, reason=reason, detail=detail))
    if state.phase == "terminated" and state.released != "terminated":
        decided.append(
            facts.SandboxReleaseRequested(epoch=state.requested_epoch, reason="terminated", delete_workspace=True)
        )
    if state.phase == "failed" and state.released is None:
        decided.append(facts.SandboxReleaseRequested(epoch=state.requested_epoch, reason="failed"))
    return decided


def _interrupted(state: SessionState, now_ms: int) -> facts.TurnInterrupted | None:
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
            detail=f"The turn did not finish: {why}. The workspace is kept; send the prompt again to go on.",
        )
    if turn.started_epoch is None and turn.losses >= limits.TURN_LOSSES:
        return facts.TurnInterrupted(
            turn_id=turn.turn_id,
            reason="runner_lost",
            detail=f"The sandbox ended {turn.losses} times before the turn could begin ({state.detail}).",
        )
    if turn.interrupt_due_ms is not None and turn.interrupt_due_ms <= now_ms:
        return facts.TurnInterrupted(
            turn_id=turn.turn_id, reason="aborted", detail="The turn was stopped; its runner did not confirm it."
        )
    return None


def _answered(state: SessionState, now_ms: int) -> list[facts.QuestionAnswered]:
    decided: list[facts.QuestionAnswered] = []
    for question in state.questions:
        if question.kind == "permission" and state.policy.permissions == "auto-approve":
            decided.append(
                facts.QuestionAnswered(question_id=question.question_id, answers=[["once"]], answered_by="policy")
            )
        elif question.due_ms <= now_ms:
            decided.append(
                facts.QuestionAnswered(
                    question_id=question.question_id, answers=_default(question), answered_by="default"
                )
            )
    return decided


def _default(question: OpenQuestion) -> list[list[str]]:
    """The first option of each question; a permission is refused, because silence is not consent."""
    if question.kind == "permission":
        return [["reject"]]
    return [[item.options[0].label] if item.options else [] for item in question.questions]


def _wants_sandbox(state: SessionState) -> bool:
    """Whether there is no sandbox, but work for one."""
    if state.phase == "lost":
        return state.recover or bool(state.queue) or state.turn is not None
    return state.phase == "hibernated" and (
        bool(state.queue) or (state.turn is not None and state.turn.started_epoch is None)
    )


def _sandbox(state: SessionState, now_ms: int) -> Data | None:
    if state.requested_epoch == 0:
        return _request(state, "created", now_ms)
    if state.phase in BOOTING:
        if state.boot_deadline_ms is None or now_ms < state.boot_deadline_ms:
            return None
        stage = "started" if state.attached_epoch < state.requested_epoch else "made the workspace ready"
        return _recover(state, now_ms, "boot_timed_out", f"no runner {stage} in time")
    if not _wants_sandbox(state) or (state.hold_until_ms is not None and now_ms < state.hold_until_ms):
        return None
    if state.phase == "lost" and state.recover:
        return _recover(state, now_ms, "sandbox_failed", state.detail)
    return _request(state, "prompt", now_ms)


def _recover(state: SessionState, now_ms: int, code: str, detail: str) -> Data:
    if state.recoveries < limits.RECOVERIES:
        return _request(state, "recovery", now_ms)
    return facts.SessionFailed(
        code=code, detail=f"The sandbox did not come up in {state.recoveries + 1} attempts; the last one: {detail}"
    )


def _request(state: SessionState, reason: "facts.SandboxReason", now_ms: int) -> facts.SandboxRequested:
    return facts.SandboxRequested(
        epoch=state.requested_epoch + 1,
        reason=reason,
        repo=state.repo,
        branch=state.branch,
        model=state.model,
        boot_deadline_ms=now_ms + limits.ATTACH_DEADLINE_MS,
    )


def _dispatched(state: SessionState) -> facts.TurnDispatched | None:
    if state.phase != "ready" or state.turn is not None or not state.queue:
        return None
    prompt = state.queue[0]
    return facts.TurnDispatched(
        turn_id=derived_id(state.session_id, "turn", prompt.prompt_id),
        prompt_id=prompt.prompt_id,
        content=prompt.content,
        model=prompt.model,
        author=prompt.author,
        channel=prompt.channel,
    )
