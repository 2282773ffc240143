"""Errors of the process service. What is refused to a client is a `valet_protocol.errors.Refused`.

ProcessesError
├── BadSpec         the document on standard input cannot be used
├── CannotStart     a command cannot be started; code and reason for whoever asked
└── Closed          the process no longer takes input
"""


class ProcessesError(Exception):
    """Any error of this package."""


class BadSpec(ProcessesError):
    """The spec is missing or cannot be read."""


class CannotStart(ProcessesError):
    """A command cannot be started."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        """A stable word: `command_not_found`, `not_executable`, `cwd_missing`, `too_long`, `cannot_start`."""
        self.detail = detail


class Closed(ProcessesError):
    """Standard input was closed, by a client or by the process itself."""
