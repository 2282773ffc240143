"""Tokens that open a sandbox's gateway: who, which session, which of its services, until when.

HS256 JWTs. The key is made of the installation's secret and the session's id: what a sandbox's gateway holds opens no
other sandbox. Pure.
"""

import base64
import hmac
from typing import Literal

import msgspec

from valet_service import lean
from valet_service.errors import ServiceError

with lean.without("cryptography"):  # HS256 needs none of it
    import jwt

Service = Literal["vscode", "vnc", "ttyd", "t", "processes", "opencode", "*"]
"""The first segment of the path it opens (`processes` is `/v1/processes` and `/pty`); `*` is everything that is for
people: all but `opencode`, which is the platform's own."""

SERVICES: tuple[Service, ...] = ("vscode", "vnc", "ttyd", "t", "processes", "opencode", "*")

PLATFORM = "platform"
"""The `sub` of the platform's own tokens."""

TOKEN_CHARS = 4096
"""Longest token looked at: ours have a few hundred characters, and the rest is somebody trying."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says."""

    sub: str
    """The user's id, or `platform`."""
    sid: str
    """The session's id."""
    svc: Service
    exp: int
    """Seconds since 1970."""
    seq: int = 0
    """The end of the log before it was asked whether they may write to the session: what the log says later about who
    may, this token does not know of. 0 knows of nothing."""


def key(secret: bytes, session_id: str) -> str:
    """The key of one session's tokens. `secret` is the installation's (32 bytes)."""
    return hmac.new(secret, f"sandbox-token:{session_id}".encode(), "sha256").hexdigest()


def mint(signing: str, claims: Claims) -> str:
    """A token, signed with `key(…)`."""
    return jwt.encode(msgspec.to_builtins(claims), signing, algorithm="HS256")


class BadToken(ServiceError):
    """A token that opens nothing. The message says why, for a log; whoever showed it is not told."""


def looks_ours(token: str) -> bool:
    """Whether this is meant to be a sandbox token, good or not: a JWT whose claims name a session and a service.

    Programs inside a sandbox have tokens of their own, in the same header and the same parameter of a URL.
    """
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_CHARS:
        return False
    try:
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=dict[str, object]
        )
    except (ValueError, msgspec.MsgspecError):
        return False
    return "sid" in claims and "svc" in claims


def verify(signing: str, token: str, *, session_id: str, now: float) -> Claims:
    """What a good token of this session says. `signing` is `key(…)`, `now` seconds since 1970.

    Raises `BadToken` for any other: not signed by HS256 with this key, a claim that is missing or of the wrong type,
    another session, expired. Whether the log has taken it back since is for the gateway to say (`seq`).
    """
    if len(token) > TOKEN_CHARS:
        raise BadToken(f"it has {len(token)} characters")
    try:
        said: dict[str, object] = jwt.decode(
            token,
            signing,
            algorithms=["HS256"],
            # the time is told, not looked up; whether the claims are there is seen below
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False},
        )
    except jwt.InvalidAlgorithmError:
        raise BadToken("it is not signed by HS256") from None
    except jwt.InvalidSignatureError:
        raise BadToken("its signature is not by this session's key") from None
    except jwt.InvalidTokenError as error:
        raise BadToken(f"it is no JWT: {type(error).__name__}") from None
    try:
        claims = msgspec.convert(said, Claims)
    except msgspec.ValidationError as error:
        raise BadToken(f"its claims cannot be used: {error}") from None
    if claims.sid != session_id:
        raise BadToken("it is for another session")
    if claims.exp <= now:
        raise BadToken(f"it expired {int(now - claims.exp)} s ago")
    if not claims.sub:
        raise BadToken("it names nobody")
    return claims


def opens(claims: Claims, service: Service) -> bool:
    """Whether a token opens a service."""
    if service == "opencode":
        return claims.svc == "opencode" and claims.sub == PLATFORM
    return claims.svc in (service, "*")
