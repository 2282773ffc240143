"""Errors of the API. What a client is told is always a `valet_protocol.errors.Refused`.

ApiError
├── PortTaken        the port cannot be listened on
├── BadToken         the administrator's token file cannot be used
└── NoEventBus       nobody takes client connections over at the moment
"""

from valet_service.errors import ServiceError


class ApiError(ServiceError):
    """Any error of this package."""


class PortTaken(ApiError):
    """Another program listens there, or this one may not."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {reason}. Stop what listens there or choose another port (0: a free one)"
        )


class BadToken(ApiError):
    """The file named by VALET_ADMIN_TOKEN_FILE is missing, unreadable or holds no usable token."""


class NoEventBus(ApiError):
    """The event bus did not take a connection in time."""
