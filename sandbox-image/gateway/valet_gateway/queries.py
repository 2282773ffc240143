"""Sandbox tokens in URLs: taking them out. Pure.

A program in the sandbox may have a `token` of its own in its URLs (a development server's hot reload, a notebook): only
what is meant to be a sandbox token is taken.
"""

from urllib.parse import unquote_plus

import msgspec
from valet_service.sandbox_token import looks_ours


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A query without its sandbox tokens."""

    token: str | None
    """The first there was."""
    query: str
    """The rest, every byte as it came."""


def take(query: str) -> Taken:
    """Take the sandbox tokens out of a query (without its `?`)."""
    token: str | None = None
    kept: list[str] = []
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        if unquote_plus(name) == "token" and looks_ours(decoded := unquote_plus(value)):
            token = token or decoded
        else:
            kept.append(piece)
    return Taken(token=token, query="&".join(kept))


def without_token(url: str) -> str:
    """A URL, as in `Referer`, without sandbox tokens in its query or fragment."""
    rest, hash_mark, fragment = url.partition("#")
    path, question, query = rest.partition("?")
    cleaned = take(query).query
    return path + (question + cleaned if cleaned else "") + (hash_mark + take(fragment).query if fragment else "")
