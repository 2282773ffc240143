"""Where a browser's request comes from: what a cookie may do for a page that is not ours. Pure.

A cookie comes along whoever makes the request. `SameSite` keeps other sites out, but a page on another port of the same
host name is of the same site: the tunnels of the neighbouring sandbox, for one.
"""

import re
from urllib.parse import urlsplit

from valet_protocol.errors import Forbidden

from valet_gateway.errors import HeadRefused

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


def check_host(hosts: list[str]) -> str:
    """The one `Host` of a request. Raises `HeadRefused` if there is none, more than one, or one that is no name."""
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise HeadRefused("A request needs exactly one Host header, a host name with or without a port.")
    return hosts[0]


def check_cookie_use(
    *, method: str, upgrade: bool, host: str, origin: str | None, site: str | None, mode: str | None
) -> None:
    """May a cookie speak for this request? `site`, `mode`: `Sec-Fetch-Site`, `Sec-Fetch-Mode`. Raises `Forbidden`."""
    if upgrade:
        # browsers always send it with a WebSocket, and nothing else can be told from a page elsewhere
        allowed = origin is not None and _same(origin, host)
    elif method not in _SAFE:
        allowed = _same(origin, host) if origin is not None else site in (None, "same-origin", "none")
    else:
        # to open a page is fine; to embed or fetch it from elsewhere is not. Old browsers do not say
        allowed = site in (None, "same-origin", "none") or mode == "navigate"
    if not allowed:
        raise Forbidden(
            "other_origin",
            "This came from a page of another origin, where a cookie is not enough: send a token (?token= or bearer).",
        )


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    default = ":443" if parts.scheme == "https" else ":80"
    return parts.netloc.lower().removesuffix(default) == host.lower().removesuffix(default)
