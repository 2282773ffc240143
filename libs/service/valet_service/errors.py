"""Errors of the service library.

ServiceError
├── BadSettings         an environment variable is missing or wrong
├── BrokerTooOld        the NATS server is older than 2.12 and would ignore what Valet asks of it
├── AppendConflict      somebody else appended first; read on and decide again
├── AppendUnknown       no answer to an append: it may or may not be stored
├── EventTooLarge       an event over the size limit; its writer must cut it
└── Stopped             the thing was stopped while it was being waited for
"""


class ServiceError(Exception):
    """Any error of this package."""


class BadSettings(ServiceError):
    """An environment variable is missing or cannot be used."""


class BrokerTooOld(ServiceError):
    """An old server accepts newer settings without honouring them (measured), so it is refused."""

    def __init__(self, version: str, needed: str) -> None:
        super().__init__(
            f"The NATS server is {version}; Valet needs {needed} or newer, because older ones ignore its stream"
            " settings without saying so. Install a newer nats-server, or unset NATS_BIN to use the bundled one."
        )


class AppendConflict(ServiceError):
    """The log of the session has moved on since it was read."""


class AppendUnknown(ServiceError):
    """A publish was not acknowledged in time. A time-out is not a failure: the same id may be sent again."""


class EventTooLarge(ServiceError):
    """The broker would end the connection of who publishes this."""

    def __init__(self, subject: str, size: int) -> None:
        super().__init__(f"an event of {size} bytes for {subject} is over the limit")


class Stopped(ServiceError):
    """Raised to whoever waits on something that is being closed."""
