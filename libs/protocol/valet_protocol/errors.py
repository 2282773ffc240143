"""Errors of the protocol.

ProtocolError
├── BadSubject          a subject that is not of the session log
├── BadEvent            bytes that are not an event envelope, or data that does not fit its type
└── Refused             a request was refused; carries the problem document
    ├── BadRequest      400  the request itself is wrong
    ├── Unauthorised    401  no valid token
    ├── Forbidden       403  a valid token that may not do this
    ├── NotFound        404  no such thing, or not yours
    ├── Conflict        409  it does not fit the present state
    ├── TooLarge        413  over a size limit
    ├── Unprocessable   422  well-formed, but a value cannot be used
    ├── TooMany         429  a limit of depth or rate is reached
    └── Unavailable     503  a part of the platform is restarting; try again
"""

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457 problem document, the one shape of every refusal: over NATS, HTTP and WebSocket."""

    type: str = "about:blank"
    title: str
    """A short name of the kind of problem, the same for every occurrence."""
    status: int
    """HTTP status code."""
    detail: str = ""
    """What is wrong this time and what the reader can do about it."""
    instance: str | None = None
    code: str
    """A stable word for programs, e.g. `session_not_found`."""


class ProtocolError(Exception):
    """Any error of this package."""


class BadSubject(ProtocolError):
    """A subject that does not belong to the session log."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject!r} is not a subject of the session log")


class BadEvent(ProtocolError):
    """Bytes that do not decode to an event."""


class Refused(ProtocolError):
    """A request was refused. `code` is stable, `detail` is for a person."""

    status = 500
    title = "Refused"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail

    def problem(self) -> Problem:
        """The document to send."""
        return Problem(title=self.title, status=self.status, detail=self.detail, code=self.code)


class BadRequest(Refused):
    status, title = 400, "Bad request"


class Unauthorised(Refused):
    status, title = 401, "Not signed in"


class Forbidden(Refused):
    status, title = 403, "Not allowed"


class NotFound(Refused):
    status, title = 404, "Not found"


class Conflict(Refused):
    status, title = 409, "Conflict"


class TooLarge(Refused):
    status, title = 413, "Too large"


class Unprocessable(Refused):
    status, title = 422, "Cannot be processed"


class TooMany(Refused):
    status, title = 429, "Too many"


class Unavailable(Refused):
    status, title = 503, "Temporarily unavailable"


_BY_STATUS: dict[int, type[Refused]] = {
    kind.status: kind
    for kind in (
        BadRequest,
        Unauthorised,
        Forbidden,
        NotFound,
        Conflict,
        TooLarge,
        Unprocessable,
        TooMany,
        Unavailable,
    )
}


def from_problem(problem: Problem) -> Refused:
    """The exception for a problem document that came back from another service."""
    return _BY_STATUS.get(problem.status, Unavailable)(problem.code, problem.detail)
