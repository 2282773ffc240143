"""Errors of the scripted model.

ModelError
├── ScenarioError           the scenario file is at fault
│   ├── ScenarioUnreadable  the file cannot be opened, or is not TOML
│   ├── ScenarioInvalid     a key of it is wrong
│   └── ScenarioUnplayable  right as a file, but this prompt makes no answer of it
├── RequestRefused          the client is at fault; carries the HTTP status
└── ModelNotServing         the server could not start on that address
"""


class ModelError(Exception):
    """Any error of this package."""


class ScenarioError(ModelError):
    """The scenario cannot be played."""


class ScenarioUnreadable(ScenarioError):
    """The file is missing, unreadable, or not TOML."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = file
        self.reason = reason


class ScenarioInvalid(ScenarioError):
    """A key has a wrong value, or does not exist."""

    def __init__(self, file: str, key: str, reason: str) -> None:
        super().__init__(f"{file}: {key or 'the file'}: {reason}")
        self.file = file
        self.key = key
        self.reason = reason


class ScenarioUnplayable(ScenarioError):
    """A template gave a value that cannot be used, e.g. a number of words that is not a number."""

    def __init__(self, turn: str, step: int, reason: str) -> None:
        super().__init__(f"turn {turn!r}, step {step}: {reason}; change the prompt or the scenario")


class RequestRefused(ModelError):
    """The request is not one a chat-completions server answers."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ModelNotServing(ModelError):
    """The address cannot be listened on."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}; choose another port, or 0 for a free one")
