"""Folding what happens to the sandbox and to the runner in it. Pure."""

from msgspec.structs import replace
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Event

from valet_session_ledger import limits
from valet_session_ledger.evolve_turns import Folds
from valet_session_ledger.state import BOOTING, ENDED, Failure, SessionState


def _sandbox_requested(state: SessionState, event: Event, data: facts.SandboxRequested) -> SessionState:
    turn = state.turn
    if state.phase == "ready" and turn is not None and turn.started_epoch is None:
        # its runner never began it, and is replaced for that
        turn = replace(turn, losses=turn.losses + 1)
    return replace(
        state,
        turn=turn,
        phase="requested" if data.epoch == 1 else "restoring",
        requested_epoch=data.epoch,
        recoveries=state.recoveries + (data.reason == "recovery"),
        recover=False,
        boot_deadline_ms=data.boot_deadline_ms,
        hold_until_ms=None,
    )


def _release_requested(state: SessionState, event: Event, data: facts.SandboxReleaseRequested) -> SessionState:
    return replace(state, released=data.reason)


def _runner_attached(state: SessionState, event: Event, data: facts.RunnerAttached) -> SessionState:
    turn = state.turn
    if turn is not None and turn.started_epoch is None:
        turn = replace(turn, since_ms=event.time_ms)
    return replace(
        state,
        attached_epoch=data.epoch,
        boot_deadline_ms=event.time_ms + limits.READY_DEADLINE_MS,
        turn=turn,
        heard_ms=0,  # another machine's clock
    )


# -- the sandbox controller ----------------------------------------------------------------------------------


def _provisioning(state: SessionState, event: Event, data: sandbox.SandboxProvisioning) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    phase = "provisioning" if state.phase == "requested" else state.phase
    if state.attached_epoch == data.epoch:
        return replace(state, phase=phase)
    return replace(state, phase=phase, boot_deadline_ms=event.time_ms + limits.ATTACH_DEADLINE_MS)


def _sandbox_ready(state: SessionState, event: Event, data: sandbox.SandboxReady) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in ("requested", "provisioning"):
        return state
    return replace(state, phase="booting")


def _sandbox_failed(state: SessionState, event: Event, data: sandbox.SandboxFailed) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    if not data.retryable:
        return replace(state, failure=Failure(code="sandbox_failed", detail=data.detail))
    return _lost(state, event, data.detail)


def _sandbox_lost(state: SessionState, event: Event, data: sandbox.SandboxLost) -> SessionState:
    if data.epoch != state.requested_epoch or (state.phase not in BOOTING and state.phase != "ready"):
        return state
    return _lost(state, event, data.detail)


def _lost(state: SessionState, event: Event, detail: str) -> SessionState:
    turn = state.turn
    if turn is not None and turn.started_epoch is None:
        turn = replace(turn, losses=turn.losses + 1)
    pause = limits.RECOVERY_PAUSE_MS << state.recoveries if state.recoveries else 0
    return replace(
        state,
        phase="lost",
        detail=detail,
        turn=turn,
        recover=state.phase != "ready" or turn is not None or bool(state.queue) or bool(state.commands),
        boot_deadline_ms=None,
        hold_until_ms=event.time_ms + pause if pause else None,
    )


def _sandbox_terminated(state: SessionState, event: Event, data: sandbox.SandboxTerminated) -> SessionState:
    """Asked for by the ledger it is the end of an ended session; otherwise a loss like any other."""
    if data.epoch != state.requested_epoch or (state.phase not in BOOTING and state.phase != "ready"):
        return state
    return _lost(state, event, "The sandbox was ended.")


def _hibernated(state: SessionState, event: Event, data: sandbox.SandboxHibernated) -> SessionState:
    if data.epoch != state.requested_epoch or state.phase in ENDED:
        return state
    stopping = data.reason == "platform_stopped"
    return replace(
        state,
        phase="hibernated",
        detail="The platform was stopped." if stopping else data.reason,
        recover=False,
        boot_deadline_ms=None,
        hold_until_ms=event.time_ms + limits.PLATFORM_STOP_HOLD_MS if stopping else None,
    )


# -- the runner ----------------------------------------------------------------------------------------------


def _runner_ready(state: SessionState, event: Event, data: agent.RunnerReady) -> SessionState:
    if state.attached_epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    return replace(
        state,
        phase="ready",
        detail="",
        ready_epoch=state.attached_epoch,
        recoveries=0,
        boot_deadline_ms=None,
        base_commit=state.base_commit or data.base_commit,
    )


def _boot_failed(state: SessionState, event: Event, data: agent.BootFailed) -> SessionState:
    if state.attached_epoch != state.requested_epoch or state.phase not in BOOTING:
        return state
    code = "clone_failed" if data.stage == "clone" else "sandbox_failed"
    return replace(state, failure=Failure(code=code, detail=data.detail))


def _work_saved(state: SessionState, event: Event, data: agent.WorkSaved) -> SessionState:
    """A sandbox may name its own session's objects only: what is put back, and what a fork starts from."""
    if not data.work.object.startswith(f"sessions/{state.session_id}/saved/"):
        return state
    return replace(state, work=data.work)


FOLDS: Folds = {
    facts.SandboxRequested: _sandbox_requested,
    facts.SandboxReleaseRequested: _release_requested,
    facts.RunnerAttached: _runner_attached,
    sandbox.SandboxProvisioning: _provisioning,
    sandbox.SandboxReady: _sandbox_ready,
    sandbox.SandboxFailed: _sandbox_failed,
    sandbox.SandboxLost: _sandbox_lost,
    sandbox.SandboxHibernated: _hibernated,
    sandbox.SandboxTerminated: _sandbox_terminated,
    agent.RunnerReady: _runner_ready,
    agent.BootFailed: _boot_failed,
    agent.WorkSaved: _work_saved,
}
