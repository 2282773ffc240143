"""What to do about a session's sandbox: decisions only, from what is stored, what was asked and what is seen."""

from typing import Literal

import msgspec
from valet_protocol.events.facts import SandboxReleaseRequested, SandboxRequested

from valet_sandbox_controller.provider import Ended, Running, SandboxRef, Status
from valet_sandbox_controller.store import SandboxRecord


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Make a sandbox, after ending what an older epoch or an attempt cut short has left."""

    request: SandboxRequested
    replaces: SandboxRef | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """It runs: notice its end."""

    record: SandboxRecord
    announce: bool
    """Whether to say that it is ready: its request was delivered again, so that may not have been said."""


class ReportLost(msgspec.Struct, frozen=True, kw_only=True):
    """It ended without being told to."""

    record: SandboxRecord
    exit_code: int | None


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """End it for good."""

    epoch: int
    request: SandboxReleaseRequested
    ref: SandboxRef | None


class Ignore(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do."""

    reason: Literal["superseded", "already_ended", "released", "too_late"]


_KILLED = 128 + 9
"""The exit code of a process that SIGKILL ended."""

Action = Start | Watch | ReportLost | Release | Ignore


def requested(record: SandboxRecord | None, request: SandboxRequested, *, now_ms: int) -> Action:
    """A sandbox was asked for. The same request may come any number of times."""
    if record is not None and record.state == "terminated":
        return Ignore(reason="released")
    if record is not None and record.epoch > request.epoch:
        return Ignore(reason="superseded")
    if record is not None and record.epoch == request.epoch and record.state != "starting":
        return Watch(record=record, announce=True) if record.state == "running" else Ignore(reason="already_ended")
    if request.boot_deadline_ms <= now_ms:
        # the ledger has given this attempt up, or will at once; what it asks for next counts
        return Ignore(reason="too_late")
    return Start(request=request, replaces=None if record is None else record.ref)


def release_requested(record: SandboxRecord | None, request: SandboxReleaseRequested) -> Action:
    """A session's sandbox is not needed any more."""
    if record is None:
        return Release(epoch=request.epoch, request=request, ref=None)
    return Release(epoch=max(record.epoch, request.epoch), request=request, ref=record.ref)


def found_at_start(record: SandboxRecord, status: Status | None, *, now_ms: int) -> Action:
    """The service starts and finds this record; `status` is what the provider sees of its sandbox."""
    match status:
        case Running():
            return Watch(record=record, announce=False)
        case Ended(exit_code=code) if record.state == "running":
            return ReportLost(record=record, exit_code=code)
        case _ if record.request is not None:
            return requested(record, record.request, now_ms=now_ms)
        case _:
            return Ignore(reason="already_ended")


def loss_in_words(session_id: str, exit_code: int | None) -> str:
    """What to tell people about a sandbox that ended without being told to."""
    log = f"logs/sandboxes/{session_id}.log in the data directory may say more"
    if exit_code in (None, _KILLED):
        return (
            "The sandbox was killed: by the kernel if the agent used more memory than [sandbox] memory_mb in valet.toml"
            f" allows, else by somebody on the machine; {log}."
        )
    return f"The sandbox's runner ended by itself with exit code {exit_code}; {log}."
