"""Who may go where. Pure: the whole decision, without the network."""

import hmac
from collections.abc import Mapping
from typing import Literal

import msgspec
from valet_protocol.errors import Unavailable
from valet_service import sandbox_token
from valet_service.sandbox_token import BadToken, Claims

from valet_gateway import cookies
from valet_gateway.cookies import Grant
from valet_gateway.errors import AgentsOnly, NotAdmitted
from valet_gateway.routes import Route

AGENT = "agent"
"""The subject of what the agent's own programs ask."""


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What this gateway knows of those who come."""

    session_id: str
    key: str
    """Signs this session's tokens."""
    tools_token: str


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may be in this sandbox, as the session's log had it at some point."""

    seq: int
    """Where the log ended then."""
    since: Mapping[str, int]
    """By user id the sequence from which on they may; 0 for the owner."""

    def allows(self, subject: str, seq: int) -> bool:
        """Whether somebody may be here with what was given out when the log ended at `seq`.

        For those who may, what they got before they last came in counts no more. Those who may not are believed what
        was given out after this was known: that somebody has been let in may be heard a moment later than they come.
        """
        if subject == sandbox_token.PLATFORM:
            return True
        since = self.since.get(subject)
        return seq > self.seq if since is None else seq >= since


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a request shows."""

    url_token: str | None = None
    """A sandbox token in its query."""
    bearer: str | None = None
    """What its `Authorization` has behind `Bearer`, whosever it is."""
    cookies: tuple[Grant, ...] = ()
    """What each of its cookies opens, expired or not: pages behind the gateway can set some beside ours."""
    inside: bool = False
    """Whether it comes from a program on this machine, by the loopback."""


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Who came in."""

    subject: str
    """A user's id, `platform`, or `agent`."""
    by: Literal["token", "cookie", "tools_token"]
    seq: int = 0
    """Where the log ended when that was given out by which they came; without meaning for the agent."""
    grant: Grant | None = None
    """A cookie to be set."""
    authorization_is_ours: bool
    """Whether the request's `Authorization` was for the gateway: it is then not passed on."""


def admit(route: Route, shown: Shown, door: Door, access: Access | None, now: float) -> Admitted:
    """Who may use a route. Raises `NotAdmitted`, `AgentsOnly`, and `Unavailable` while there is no `access` to judge
    people by.

    A sandbox token is judged by itself: a bad one is not made good by a cookie beside it.
    """
    bearer_token = shown.bearer if shown.bearer and sandbox_token.looks_ours(shown.bearer) else None
    token = shown.url_token or bearer_token
    if route.kind == "tools" and shown.bearer and _equal(shown.bearer, door.tools_token):
        # everybody who ever was in the sandbox may know it
        if not shown.inside:
            raise NotAdmitted("the tools token is good inside the sandbox only")
        return Admitted(subject=AGENT, by="tools_token", authorization_is_ours=True)
    if token is not None:
        try:
            claims = sandbox_token.verify(door.key, token, session_id=door.session_id, now=now)
        except BadToken as error:
            raise NotAdmitted(str(error)) from None
        _check(access, claims.sub, claims.seq)
        if route.service is None:
            raise AgentsOnly
        if not sandbox_token.opens(claims, route.service):
            # no other token of a person opens it either
            if route.service == "opencode":
                raise AgentsOnly
            raise NotAdmitted(f"a token for {claims.svc} of {claims.sub} does not open {route.service}")
        return Admitted(
            subject=claims.sub,
            by="token",
            seq=claims.seq,
            grant=_grant(claims, shown.cookies, access, now),
            authorization_is_ours=bearer_token is not None,
        )
    refused: NotAdmitted | None = None
    for cookie in shown.cookies:
        service = None if route.service == "opencode" else route.service
        if not (cookie.is_good(now) if service is None else cookie.opens(service, now)):
            continue
        try:
            _check(access, cookie.sub, cookie.seq)
        except NotAdmitted as error:
            refused = error
            continue
        if service is None:
            raise AgentsOnly
        return Admitted(subject=cookie.sub, by="cookie", seq=cookie.seq, authorization_is_ours=False)
    nothing = "the cookies have expired or open something else" if shown.cookies else "no token and no cookie"
    raise refused or NotAdmitted(nothing)


def _check(access: Access | None, subject: str, seq: int) -> None:
    if subject == sandbox_token.PLATFORM:
        return
    if access is None:
        raise Unavailable("starting", "The sandbox does not know yet who may come in; try again in a moment.")
    if not access.allows(subject, seq):
        raise NotAdmitted(f"{subject} may not be here, or came again since: given at {seq}, judged at {access.seq}")


def _grant(claims: Claims, shown: tuple[Grant, ...], access: Access | None, now: float) -> Grant | None:
    # the platform's programs have no use for a cookie, and it must open nothing that is the platform's alone
    if claims.svc == "opencode":
        return None
    theirs = (one for one in shown if one.sub == claims.sub and access and access.allows(one.sub, one.seq))
    return cookies.extend(next(theirs, None), claims.sub, claims.svc, claims.seq, now)


def bearer(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; none for another scheme."""
    scheme, _, value = (authorization or "").partition(" ")
    return value.strip() or None if scheme.lower() == "bearer" else None


def _equal(one: str, other: str) -> bool:
    return bool(other) and hmac.compare_digest(one.encode(errors="replace"), other.encode())
