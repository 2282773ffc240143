"""Sandbox events: what happened to the session's sandbox. Only the sandbox controller writes them."""

from typing import Literal

from valet_protocol.events.envelope import Data

LossKind = Literal["gone", "unreachable", "parked", "boot_failed"]


class SandboxProvisioning(Data, frozen=True, kw_only=True):
    """A sandbox is being made."""

    epoch: int
    provider: str


class SandboxReady(Data, frozen=True, kw_only=True):
    """The sandbox runs; its runner is starting."""

    epoch: int
    provider: str
    sandbox_id: str
    isolation: str
    """How it is isolated, e.g. `bwrap`, or `none`."""


class SandboxFailed(Data, frozen=True, kw_only=True):
    """The sandbox could not be made."""

    epoch: int
    detail: str
    """What is wrong and what can be done about it."""
    retryable: bool = False


class SandboxLost(Data, frozen=True, kw_only=True):
    """There is positive evidence that the sandbox is not there any more."""

    epoch: int
    kind: LossKind
    detail: str
    exit_code: int | None = None


class SandboxHibernated(Data, frozen=True, kw_only=True):
    """The sandbox was ended in order, its workspace is kept; the next prompt brings it back."""

    epoch: int
    reason: str


class SandboxTerminated(Data, frozen=True, kw_only=True):
    """The sandbox was ended for good."""

    epoch: int
    workspace_deleted: bool
