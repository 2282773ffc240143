"""Sandbox events: what happened to the session's sandbox. Only the sandbox controller writes them."""

from typing import Literal

from valet_protocol.events.envelope import Data

LossKind = Literal["gone", "unreachable", "parked", "boot_failed"]


class SandboxProvisioning(Data, frozen=True, kw_only=True):
    """A sandbox is being made."""

    epoch: int
    """The epoch of the sandbox's runner."""
    provider: str
    """Sandbox provider, e.g. `local`."""


class SandboxReady(Data, frozen=True, kw_only=True):
    """The sandbox runs; its runner is starting."""

    epoch: int
    """The epoch of the sandbox's runner."""
    provider: str
    """Sandbox provider, e.g. `local`."""
    sandbox_id: str
    """The provider's name for it."""
    isolation: str
    """How it is isolated, e.g. `bwrap`, or `none`."""


class SandboxFailed(Data, frozen=True, kw_only=True):
    """The sandbox could not be made."""

    epoch: int
    """The epoch of the sandbox's runner."""
    detail: str
    """What is wrong and what can be done about it."""
    retryable: bool = False
    """Whether trying again may help."""


class SandboxLost(Data, frozen=True, kw_only=True):
    """There is positive evidence that the sandbox is not there any more."""

    epoch: int
    """The epoch of the sandbox's runner."""
    kind: LossKind
    """What the evidence says."""
    detail: str
    """The evidence, for people."""
    exit_code: int | None = None
    """Exit status of its first process, where it is known; negative for a signal."""


class SandboxHibernated(Data, frozen=True, kw_only=True):
    """The sandbox was ended in order, its workspace is kept; the next prompt brings it back."""

    epoch: int
    """The epoch of the sandbox's runner."""
    reason: str
    """Stable word, e.g. `platform_stopped`."""


class SandboxTerminated(Data, frozen=True, kw_only=True):
    """The sandbox was ended for good."""

    epoch: int
    """The epoch of the sandbox's runner."""
    workspace_deleted: bool
    """Whether its files are gone as well."""
