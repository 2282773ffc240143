"""Who is asking: bearer tokens, remembered for a while so that the database may be away for a while."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from valet_protocol.errors import Forbidden, Unauthorised, Unavailable
from valet_service import database, logs

from valet_api import limits
from valet_api.store import Person, Store, hash_of

_log = logs.get(__name__)

NOT_SIGNED_IN = (
    "Send the header 'Authorization: Bearer <token>'. `valet up` prints the token of the owner; "
    "an administrator makes further ones with POST /api/users."
)
WRONG_TOKEN = (
    "This token is not known here. `valet up` prints the owner's present one; `valet.json` in the data directory of a "
    "platform that runs has it, too."
)


class Authenticator:
    """Turns tokens into identities. `clock` is monotonic seconds."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, tuple[Person, float]] = {}

    async def identify(self, token: str) -> Person:
        """Raises `Unauthorised` for a token nobody has, `Unavailable` when it cannot be looked up."""
        key = hash_of(token)
        identity, checked = self._known.get(key, (None, 0.0))
        if identity is not None and self._clock() - checked < limits.IDENTITY_FRESH:
            return identity
        until = self._clock() + limits.DATABASE_WAIT
        while True:
            try:
                found = await asyncio.wait_for(self._store.person(token), limits.DATABASE_WAIT)
                break
            except database.UNAVAILABLE as error:
                _log.warning("identity_not_checked", error=str(error) or type(error).__name__)
                now = self._clock()
                if identity is not None and now - checked < limits.IDENTITY_STALE:
                    return identity
                if now > until:
                    raise Unavailable(
                        "database_unavailable", "The token cannot be checked at the moment; try again."
                    ) from error
                await asyncio.sleep(limits.DATABASE_RETRY)
        if found is None:
            self._known.pop(key, None)
            raise Unauthorised("wrong_token", WRONG_TOKEN)
        self._known.pop(key, None)  # to the end: the oldest go first
        self._known[key] = (found, self._clock())
        while len(self._known) > limits.IDENTITIES:
            del self._known[next(iter(self._known))]
        return found

    def forget(self, user: str) -> None:
        """A user has changed: look them up again."""
        self._known = {key: entry for key, entry in self._known.items() if entry[0].user != user}


def bearer(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """The token of the `Authorization` header."""
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


async def signed_in(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: the request has a valid token; its identity becomes `request.user`."""
    await _identify(connection, bearer(connection))


async def signed_in_by_query(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard for WebSocket: a browser cannot send headers with it, so `?token=` is taken as well."""
    await _identify(connection, bearer(connection) or connection.query_params.get("token"))


def administrator(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard, after `signed_in`: only an administrator may."""
    if not connection.user.admin:
        raise Forbidden("not_an_administrator", "Only an administrator may do this; ask one.")


async def _identify(connection: ASGIConnection[Any, Any, Any, Any], token: str | None) -> None:
    if not token:
        raise Unauthorised("no_token", NOT_SIGNED_IN)
    authenticator: Authenticator = connection.app.state.authenticator
    connection.scope["user"] = await authenticator.identify(token)
