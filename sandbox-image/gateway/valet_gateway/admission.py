"""Who may go where. Pure: the whole decision, without the network."""

import hmac
from typing import Literal

import msgspec
from valet_service import sandbox_token
from valet_service.sandbox_token import BadToken

from valet_gateway import cookies
from valet_gateway.cookies import Grant
from valet_gateway.errors import NotAdmitted
from valet_gateway.routes import Route

AGENT = "agent"
"""The subject of what the agent's own programs ask."""


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What this gateway knows of those who come."""

    session_id: str
    key: str
    """Signs this session's tokens."""
    tools_token: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a request shows."""

    url_token: str | None = None
    """A sandbox token in its query."""
    bearer: str | None = None
    """What its `Authorization` has behind `Bearer`, whosever it is."""
    cookie: Grant | None = None
    """What its cookies open, expired or not."""


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Who came in."""

    subject: str
    """A user's id, `platform`, or `agent`."""
    by: Literal["token", "cookie", "tools_token"]
    grant: Grant | None = None
    """A cookie to be set."""
    authorization_is_ours: bool
    """Whether the request's `Authorization` was for the gateway: it is then not passed on."""


def admit(route: Route, shown: Shown, door: Door, now: float) -> Admitted:
    """Who may use a route. Raises `NotAdmitted`.

    A sandbox token is judged by itself: a bad one is not made good by a cookie beside it.
    """
    bearer_token = shown.bearer if shown.bearer and sandbox_token.looks_ours(shown.bearer) else None
    token = shown.url_token or bearer_token
    if route.kind == "tools" and shown.bearer and _equal(shown.bearer, door.tools_token):
        return Admitted(subject=AGENT, by="tools_token", authorization_is_ours=True)
    if route.service is None:
        raise NotAdmitted("only the agent's own programs may use this, with the tools token")
    if token is not None:
        try:
            claims = sandbox_token.verify(door.key, token, session_id=door.session_id, now=now)
        except BadToken as error:
            raise NotAdmitted(str(error)) from None
        if not sandbox_token.opens(claims, route.service):
            raise NotAdmitted(f"a token for {claims.svc} of {claims.sub} does not open {route.service}")
        # the platform's programs have no use for a cookie, and it must open nothing that is the platform's alone
        grant = None if claims.svc == "opencode" else cookies.extend(shown.cookie, claims.sub, claims.svc, now)
        return Admitted(subject=claims.sub, by="token", grant=grant, authorization_is_ours=bearer_token is not None)
    if shown.cookie and route.service != "opencode" and shown.cookie.opens(route.service, now):
        return Admitted(subject=shown.cookie.sub, by="cookie", authorization_is_ours=False)
    raise NotAdmitted("the cookie has expired or opens something else" if shown.cookie else "no token and no cookie")


def bearer(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; none for another scheme."""
    scheme, _, value = (authorization or "").partition(" ")
    return value.strip() or None if scheme.lower() == "bearer" else None


def _equal(one: str, other: str) -> bool:
    return bool(other) and hmac.compare_digest(one.encode(errors="replace"), other.encode())
