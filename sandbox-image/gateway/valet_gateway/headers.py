"""What is passed on of a request's and a response's head. Pure.

Heads are taken apart and made anew, never copied as bytes; what frames a message (its length, its connection) is always
ours.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from multidict import CIMultiDict

from valet_gateway import cookies, queries
from valet_gateway.errors import HeadRefused, MethodRefused
from valet_gateway.targets import Target

_PASSED_ON = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods that are known to be; others that are no proxy's business are passed on as well."""

_HOP = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Of one connection only (RFC 9110, 7.6.1), and what frames a message."""

_SAID_BY_US = ("x-forwarded-", "x-valet-", "sec-websocket-")
_SAID_BY_US_WHOLE = frozenset({"forwarded", "x-real-ip", "host", "cookie", "referer"})
_BELOW_PREFIX = frozenset({"location", "content-location", "service-worker-allowed"})

_FOR_THE_WHOLE_HOST = frozenset(
    {"alt-svc", "clear-site-data", "nel", "public-key-pins", "report-to", "strict-transport-security"}
)
"""Of a response: what a browser does to the whole host or origin, its other ports and programs too."""

Fields = Iterable[tuple[str, str]]


class Onward(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway says about a request to the program that gets it."""

    host: str
    prefix: str
    """Below which the program is found from outside; empty where it is found at the root."""
    prefix_kept: bool = False
    """Whether the program is asked with the prefix: it makes its links so by itself."""
    secure: bool
    peer: str | None
    """Address of who is connected, if it has one."""
    subject: str
    """Who asks: a user's id, `platform`, `agent`."""
    authorization: str | None = None
    """The program's own; none to pass on what came, if that was not for us."""
    keep_authorization: bool = False


def check(method: str, version: tuple[int, int], fields: list[tuple[str, str]]) -> None:
    """Raises `MethodRefused`, `HeadRefused` for what two programs might read in two ways."""
    if method in ("CONNECT", "TRACE") or not re.fullmatch(r"[A-Z][A-Z-]{0,31}", method):
        raise MethodRefused(*_PASSED_ON)
    if version not in ((1, 0), (1, 1)):
        raise HeadRefused("Only HTTP/1.0 and HTTP/1.1 are spoken here.")
    lengths = _values(fields, "content-length")
    codings = _values(fields, "transfer-encoding")
    if len(lengths) > 1 or any(not re.fullmatch(r"[0-9]{1,18}", value) for value in lengths):
        raise HeadRefused("A request has at most one Content-Length, a plain number.")
    if codings and (lengths or version == (1, 0) or [value.lower() for value in codings] != ["chunked"]):
        raise HeadRefused("The only Transfer-Encoding is 'chunked', without a Content-Length beside it, in HTTP/1.1.")
    if any(len(_values(fields, name)) > 1 for name in ("authorization", "upgrade", "origin", "expect")):
        raise HeadRefused("Authorization, Upgrade, Origin and Expect may come only once.")


def to_backend(fields: Fields, onward: Onward) -> CIMultiDict[str]:
    """The head of the request that is passed on, without its framing."""
    fields = list(fields)
    dropped = _HOP | _named_in_connection(fields)
    out: CIMultiDict[str] = CIMultiDict()
    for name, value in fields:
        lower = name.lower().replace("_", "-")  # to many programs they are the same
        if lower in dropped or lower in _SAID_BY_US_WHOLE or lower.startswith(_SAID_BY_US):
            continue
        if lower == "authorization" and not onward.keep_authorization:
            continue
        out.add(name, _sendable(value))
    jar = "; ".join(kept for value in _values(fields, "cookie") if (kept := cookies.to_backend(value)))
    if jar:
        out["Cookie"] = _sendable(jar)
    for value in _values(fields, "referer")[:1]:
        out["Referer"] = _sendable(queries.without_token(value))
    if onward.authorization:
        out["Authorization"] = onward.authorization
    out["Host"] = onward.host
    out["X-Forwarded-Host"] = onward.host
    out["X-Forwarded-Proto"] = "https" if onward.secure else "http"
    if onward.peer:
        out["X-Forwarded-For"] = onward.peer
    if onward.prefix and not onward.prefix_kept:
        out["X-Forwarded-Prefix"] = onward.prefix
    out["X-Valet-Subject"] = onward.subject
    return out


def from_backend(fields: Fields, *, prefix: str, target: Target, host: str) -> CIMultiDict[str]:
    """The head of the response that is passed back, without its framing."""
    fields = list(fields)
    dropped = _HOP | _named_in_connection(fields)
    out: CIMultiDict[str] = CIMultiDict()
    for name, value in fields:
        lower = name.lower()
        if lower in dropped or lower in _FOR_THE_WHOLE_HOST or lower.startswith("x-valet-"):
            continue
        if lower == "set-cookie":
            cookie = cookies.from_backend(value, prefix)
            if cookie is not None:
                out.add(name, _sendable(cookie))
        elif lower in _BELOW_PREFIX:
            out.add(name, _sendable(below(value, prefix=prefix, target=target, host=host)))
        else:
            out.add(name, _sendable(value))
    return out


def below(url: str, *, prefix: str, target: Target, host: str) -> str:
    """A URL in which a program names itself, as a browser must ask for it; any other as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    own = target.authorities | {host}
    if parts.netloc:
        if parts.scheme not in ("", "http", "https") or parts.netloc not in own:
            return url
        # two slashes at the start would be another host
        url = "/" + parts._replace(scheme="", netloc="").geturl().lstrip("/")
    if not url.startswith("/") or f"{url.partition('?')[0].partition('#')[0]}/".startswith(f"{prefix}/"):
        return url
    return f"{prefix}/{url.lstrip('/')}"


def _values(fields: Fields, name: str) -> list[str]:
    return [value.strip() for key, value in fields if key.lower() == name]


def _named_in_connection(fields: Fields) -> frozenset[str]:
    return frozenset(
        name.strip().lower() for value in _values(fields, "connection") for name in value.split(",") if name.strip()
    )


def _sendable(value: str) -> str:
    """Bytes that are no UTF-8 arrive as lone surrogates, which cannot be sent: they are read as Latin-1."""
    if value.isascii():
        return value
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
