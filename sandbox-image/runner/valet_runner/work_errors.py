"""Errors of saved work and of the object store.

RunnerError
├── ObjectError
│   ├── ObjectMissing      there is no such object
│   ├── ObjectRefused      the portal does not allow it, or it is too large; the portal's words
│   └── ObjectsUnavailable no answer, or the store is away; trying again later is right
└── WorkError
    ├── BadWork            saved work that is not what was saved: damaged, or of another version
    └── WorkTooLarge       the work does not fit into one object
"""

from valet_runner.errors import RunnerError


class ObjectError(RunnerError):
    """The object store did not do what it was asked."""


class ObjectMissing(ObjectError):
    """There is no object of this name."""


class ObjectRefused(ObjectError):
    """The portal refused; asking again gives the same answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the portal answered {status}: {detail}")
        self.status = status
        """HTTP status."""


class ObjectsUnavailable(ObjectError):
    """The portal, or the store behind it, does not answer at the moment."""


class WorkError(RunnerError):
    """Work cannot be saved or put back."""


class BadWork(WorkError):
    """What was fetched is not a piece of saved work."""


class WorkTooLarge(WorkError):
    """What is to be saved is larger than an object may be."""
