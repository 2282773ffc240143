"""Errors of the service library.

ServiceError
├── BadSettings         an environment variable is missing or wrong
├── BrokerTooOld        the NATS server is older than 2.12 and would ignore what Valet asks of it
├── AppendConflict      somebody else appended first; read on and decide again
├── AppendUnknown       no answer to an append: it may or may not be stored
├── EventTooLarge       an event over the size limit; its writer must cut it
├── ObjectStoreError    of the object store:
│   ├── ObjectNotFound          there is no object of that name
│   ├── ObjectTooLarge          more came than the caller allows; nothing of it is kept
│   └── ObjectStoreUnavailable  the store is away, refuses, or was cut off; the same may be tried again
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


class ObjectStoreError(ServiceError):
    """Any error of the object store."""


class ObjectNotFound(ObjectStoreError):
    """Nothing was ever stored under that name, or it was deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no object {name!r}")
        self.name = name


class ObjectTooLarge(ObjectStoreError):
    """An object is larger than its writer may make it; what was sent of it is gone again."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the object is larger than the {limit} bytes that are allowed")
        self.limit = limit
        """Bytes."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The object store could not do it. A put that failed has left nothing to be seen and may be tried again."""


class Stopped(ServiceError):
    """Raised to whoever waits on something that is being closed."""
