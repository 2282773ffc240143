"""Errors of the sandbox controller.

SandboxError
├── SandboxRefused           the sandbox cannot be made; says what to do, and whether trying again can help
│   ├── IsolationUnavailable     bwrap is missing or does not work here, and `none` was not asked for
│   ├── RepositoryUnusable       the repository of the session cannot be given to a sandbox
│   ├── ToolMissing              a program the sandbox needs is not there
│   └── ProviderFailed           the provider tried and failed; carries its words
├── BadPortalRequest         a sandbox asked the portal for something that is refused (carries an HTTP status)
└── GatewayAway              a sandbox's gateway does not take connections
"""

from valet_service.errors import ServiceError


class SandboxError(ServiceError):
    """Any error of this package."""


class SandboxRefused(SandboxError):
    """A sandbox cannot be made. The message is for the person whose session it is."""

    retryable = False
    """Whether another attempt may succeed without anybody doing anything."""


class IsolationUnavailable(SandboxRefused):
    """Agents cannot be locked in on this machine."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Agents cannot be isolated here: {reason}. Install bubblewrap (Debian, Ubuntu:"
            " `apt-get install bubblewrap`) and allow user namespaces (`sysctl kernel.unprivileged_userns_clone=1`,"
            " on Ubuntu also `sysctl kernel.apparmor_restrict_unprivileged_userns=0`). On a machine that is a sandbox"
            ' already, `--isolation none` (or `isolation = "none"` under [sandbox] in valet.toml) does without.'
        )


class RepositoryUnusable(SandboxRefused):
    """The repository's path is not one of a git repository that can be read."""


class ToolMissing(SandboxRefused):
    """A program that every sandbox needs is missing."""


class ProviderFailed(SandboxRefused):
    """The provider could not start the sandbox."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class GatewayAway(SandboxError):
    """A sandbox's gateway cannot be connected to: it starts, has been killed, or the sandbox is gone."""


class BadPortalRequest(SandboxError):
    """The portal refuses a request of a sandbox."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
