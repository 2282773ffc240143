"""Tokens that are shown once. Pure but for the randomness of those that need not come out alike again."""

import base64
import hashlib
import hmac
import secrets

import msgspec


def token(secret: bytes, *request: str | None) -> str:
    """32 bytes in 43 characters fit for URLs.

    `request` is what the token is for, the client's Idempotency-Key last: with a key the same request gets the same
    token, which nobody without the installation's `secret` can work out, and which needs to be stored nowhere.
    """
    if request[-1] is None:
        return secrets.token_urlsafe(32)
    digest = hmac.digest(secret, b"token" + msgspec.json.encode(request), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def share_token(session_id: str, secret_part: str) -> str:
    """A share link's token: it says which session it is for, so that it can be asked for."""
    return f"{session_id}.{secret_part}"


def session_of(share_token: str) -> str:
    """The session a share link's token is for; not checked."""
    return share_token.partition(".")[0]


def sha256_of(token: str) -> str:
    """What the ledger is told of a token, hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()
