"""Asking the session ledger."""

from typing import ClassVar, Protocol, TypeVar, cast

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import NotFound
from valet_protocol.ids import is_ulid
from valet_protocol.requests import (
    ListSessions,
    Reply,
    Request,
    SessionPage,
)
from valet_service import limits, rpc

R = TypeVar("R", bound=Reply)


class AboutSession(Protocol):
    """A command or read about one session: every request of the ledger but those over many."""

    method: ClassVar[str]

    @property
    def session_id(self) -> str: ...


class Ledger:
    """Requests to the ledgers. While one restarts a request waits; after 10 s it raises `Unavailable`."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc

    async def ask(self, request: AboutSession, reply: type[R], *, timeout: float = limits.REQUEST_TIMEOUT) -> R:
        """A command or read about one session. Raises the `Refused` that came back."""
        if not is_ulid(request.session_id):
            raise NotFound("session_not_found", f"There is no session {request.session_id[:40]!r}.")
        subject = subjects.ledger_command(request.session_id, request.method)
        return await rpc.call(self._nc, subject, cast("Request", request), reply, timeout=timeout)

    async def sessions(self, request: ListSessions, *, timeout: float | None = None) -> SessionPage:
        """A read over many sessions."""
        options = {} if timeout is None else {"timeout": timeout}
        return await rpc.call(self._nc, subjects.ledger_query(request.method), request, SessionPage, **options)
