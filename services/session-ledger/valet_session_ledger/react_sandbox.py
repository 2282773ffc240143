"""When a session gets a sandbox, a new one in place of a lost one, and when it is given up. Pure."""

from valet_protocol.events import facts
from valet_protocol.events.envelope import Data

from valet_session_ledger import limits
from valet_session_ledger.react_turns import never_begun
from valet_session_ledger.state import BOOTING, SessionState


def wants_sandbox(state: SessionState) -> bool:
    """Whether there is no sandbox, but work for one."""
    waiting = bool(state.queue) or bool(state.commands)
    if state.phase == "lost":
        return state.recover or waiting or state.turn is not None
    return state.phase == "hibernated" and (waiting or (state.turn is not None and state.turn.started_epoch is None))


def sandbox(state: SessionState, now_ms: int, seen_ms: int = 0) -> Data | None:
    """The request for a sandbox, or the end of a session whose sandboxes do not come up."""
    if state.requested_epoch == 0 and state.phase in BOOTING:
        return _request(state, "created", now_ms)
    if state.phase in BOOTING:
        if state.boot_deadline_ms is None or now_ms < state.boot_deadline_ms:
            return None
        stage = "started" if state.attached_epoch < state.requested_epoch else "made the workspace ready"
        return _recover(state, now_ms, "boot_timed_out", f"no runner {stage} in time")
    if never_begun(state, now_ms, seen_ms):
        return _recover(state, now_ms, "runner_silent", "its runner began no turn and said nothing")
    if not wants_sandbox(state) or (state.hold_until_ms is not None and now_ms < state.hold_until_ms):
        return None
    if state.phase == "lost" and state.recover:
        return _recover(state, now_ms, "sandbox_failed", state.detail)
    return _request(state, "prompt", now_ms)


def wind_up(state: SessionState, detail: str) -> list[Data]:
    """What is left to do in a session that has ended."""
    decided: list[Data] = []
    terminated = state.phase == "terminated"
    if state.turn is not None:
        decided.append(
            facts.TurnInterrupted(
                turn_id=state.turn.turn_id, reason="terminated" if terminated else "failed", detail=detail
            )
        )
    decided += [
        facts.CommandTimedOut(request_id=command.request_id, detail="The session ended before it could be done.")
        for command in state.commands
    ]
    if state.requested_epoch == 0:
        return decided
    if terminated and state.released != "terminated":
        decided.append(
            facts.SandboxReleaseRequested(epoch=state.requested_epoch, reason="terminated", delete_workspace=True)
        )
    if not terminated and state.released is None:
        decided.append(facts.SandboxReleaseRequested(epoch=state.requested_epoch, reason="failed"))
    return decided


def _recover(state: SessionState, now_ms: int, code: str, detail: str) -> Data:
    if state.recoveries < limits.RECOVERIES:
        return _request(state, "recovery", now_ms)
    return facts.SessionFailed(
        code=code, detail=f"The sandbox did not come up in {state.recoveries + 1} attempts; the last one: {detail}"
    )


def _request(state: SessionState, reason: facts.SandboxReason, now_ms: int) -> facts.SandboxRequested:
    return facts.SandboxRequested(
        epoch=state.requested_epoch + 1,
        reason=reason,
        repo=state.repo,
        branch=state.branch,
        model=state.model,
        boot_deadline_ms=now_ms + limits.ATTACH_DEADLINE_MS,
    )
