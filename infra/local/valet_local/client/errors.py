"""Errors of the client. A refusal by the API is `valet_protocol.errors.Refused`, with the API's own words.

ClientError
├── BadEndpoint    the address or the token that was given cannot be used
├── NotReachable   no answer from the API for as long as the client was willing to wait
├── BadAnswer      something answered that is not Valet's API, or not one this version understands
├── ExportChanged  the session went on while it was exported over a connection that broke
└── FileTrouble    a file that is to be sent or written cannot be
"""

from pathlib import Path

from valet_local.errors import LocalError
from valet_local.invocation import typed


class ClientError(LocalError):
    """Any error of this package."""


class BadEndpoint(ClientError):
    pass


class NotReachable(ClientError):
    def __init__(self, url: str, seconds: float, reason: str) -> None:
        super().__init__(
            f"no answer from {url} for {seconds:.0f} s ({reason}). "
            f"Is the platform running? `{typed('doctor')}` looks, `{typed('up')}` starts it"
        )


class BadAnswer(ClientError):
    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} does not answer like Valet's API: {reason}. Check the URL and both versions")


class ExportChanged(ClientError):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"the connection broke, and session {session_id} went on meanwhile, so the rest would not fit what is "
            "there. Export it again, best when no turn runs"
        )


class FileTrouble(ClientError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
