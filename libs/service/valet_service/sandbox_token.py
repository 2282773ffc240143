"""Tokens that open a sandbox's gateway: who, which session, which of its services, until when.

HS256 JWTs. The key is made of the installation's secret and the session's id: what a sandbox's gateway holds opens no
other sandbox. Pure.
"""

import hmac
from typing import Literal

import msgspec

from valet_service import lean

with lean.without("cryptography"):  # HS256 needs none of it
    import jwt

Service = Literal["vscode", "vnc", "ttyd", "t", "processes", "opencode", "*"]
"""The first segment of the path it opens (`processes` is `/v1/processes` and `/pty`); `*` is everything that is for
people: all but `opencode`, which is the platform's own."""

SERVICES: tuple[Service, ...] = ("vscode", "vnc", "ttyd", "t", "processes", "opencode", "*")

PLATFORM = "platform"
"""The `sub` of the platform's own tokens."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says."""

    sub: str
    """The user's id, or `platform`."""
    sid: str
    """The session's id."""
    svc: Service
    exp: int
    """Seconds since 1970."""


def key(secret: bytes, session_id: str) -> str:
    """The key of one session's tokens. `secret` is the installation's (32 bytes)."""
    return hmac.new(secret, f"sandbox-token:{session_id}".encode(), "sha256").hexdigest()


def mint(signing: str, claims: Claims) -> str:
    """A token, signed with `key(…)`."""
    return jwt.encode(msgspec.to_builtins(claims), signing, algorithm="HS256")
