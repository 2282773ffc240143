"""The token with which a sandbox identifies itself at the portal: a JWT, HS256, for one session and epoch."""

import msgspec
from valet_service import lean

from valet_sandbox_controller.errors import BadPortalRequest

with lean.without("cryptography"):  # HS256 needs none of it
    import jwt

_SERVICE = "portal"


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is."""

    session_id: str
    epoch: int


def mint(secret: bytes, session_id: str, epoch: int, expires: int) -> str:
    """A token; `expires` is seconds since 1970."""
    claims = {"sub": session_id, "sid": session_id, "epoch": epoch, "svc": _SERVICE, "exp": expires}
    return jwt.encode(claims, secret, algorithm="HS256")


def verify(secret: bytes, token: str) -> Bearer:
    """Whose token it is. Raises `BadPortalRequest` (407) for one that is not ours, expired, or for something else."""
    try:
        claims = jwt.decode(token, secret, algorithms=["HS256"], options={"require": ["exp", "sid", "svc"]})
    except jwt.InvalidTokenError as error:
        raise BadPortalRequest(407, f"the portal token is not valid: {error}") from error
    if claims["svc"] != _SERVICE:
        raise BadPortalRequest(407, f"this token is for {claims['svc']!r}, not for the portal")
    return Bearer(session_id=str(claims["sid"]), epoch=int(claims.get("epoch", 0)))
