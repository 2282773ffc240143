"""Errors of the commands themselves.

LocalError
├── ProcessGone    a process in a sandbox is there no more, and how it ended is not known
└── OutputGone     what is to be shown cannot be written any more
"""

from valet_local.errors import LocalError


class ProcessGone(LocalError):
    def __init__(self, why: str) -> None:
        super().__init__(f"the program is gone, and how it ended is not known: {why}")


class OutputGone(LocalError):
    """`broken` says whether whoever read it has enough, as `head` does: that is no error of anybody."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"its output cannot be written here: {error.strerror or error}; the program was stopped")
        self.broken = isinstance(error, BrokenPipeError)
