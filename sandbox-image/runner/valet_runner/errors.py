"""Errors of the runner.

RunnerError
├── BadSpec             the file the sandbox controller left cannot be used
├── CloneFailed         git could not make the working copy; its own words
├── CommandRefused      a command between turns cannot be carried out; why, and what to do
├── GitFailed           git could not say what has changed
├── OpencodeFailed      OpenCode cannot be started at all
├── OpencodeUnavailable OpenCode does not answer at the moment; it is being restarted
├── OpencodeRefused     OpenCode answered with an error; its own words
├── RelayRefused        the portal did not let a connection through
├── Replaced            a newer runner has the session
└── ServiceUnavailable  a part of the sandbox beside OpenCode does not run; the session goes on without
"""


class RunnerError(Exception):
    """Any error of this package."""


class BadSpec(RunnerError):
    """The runner's spec is missing or cannot be read."""


class CloneFailed(RunnerError):
    """The message is git's own, without progress lines and without credentials."""


class CommandRefused(RunnerError):
    """A command between turns cannot be carried out; the message goes to whoever asked for it."""


class GitFailed(RunnerError):
    """Git ended with an error or took too long; the message is its own."""


class OpencodeFailed(RunnerError):
    """OpenCode ended before it could be used, again and again; the message holds its last words."""


class OpencodeUnavailable(RunnerError):
    """No OpenCode to talk to: it is starting, restarting or hanging. Trying again later is right."""


class OpencodeRefused(RunnerError):
    """OpenCode answered, but not with success."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"OpenCode answered {status}: {detail}")
        self.status = status
        """HTTP status."""
        self.detail = detail


class RelayRefused(RunnerError):
    """The portal's answer to `CONNECT` was not 200."""


class Replaced(RunnerError):
    """The session has gone on to a newer epoch; this runner has nothing left to do."""


class ServiceUnavailable(RunnerError):
    """A part of the sandbox beside OpenCode could not be started or does not answer; the message says why."""
