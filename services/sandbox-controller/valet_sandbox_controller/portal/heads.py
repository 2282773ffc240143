"""The head of an HTTP request as the portal reads it, and the heads it writes. Pure."""

import base64
import binascii
from urllib.parse import urlsplit

import msgspec

from valet_sandbox_controller.errors import BadPortalRequest

_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer")
)
_REASONS = {
    200: "Connection established",
    201: "Created",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Request line and header fields."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]

    def field(self, name: str) -> str | None:
        """The first field of that name (given in small letters)."""
        return next((value for key, value in self.fields if key.lower() == name), None)


class Authority(msgspec.Struct, frozen=True):
    """Where to connect."""

    host: str
    port: int


def parse(head: bytes) -> Head:
    """The bytes up to, without, the empty line. Raises `BadPortalRequest` (400)."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadPortalRequest(400, "this is not an HTTP/1.1 request")
    fields: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadPortalRequest(400, "a header field is malformed")
        fields.append((name, value.strip()))
    return Head(method=words[0], target=words[1], fields=tuple(fields))


def authority(text: str, default_port: int | None = None) -> Authority:
    """`host:port`, `[v6]:port`. Raises `BadPortalRequest` (400)."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port or default_port
    except ValueError:
        host = port = None
    if not host or not port:
        raise BadPortalRequest(400, f"{text!r} is not host:port")
    return Authority(host, port)


def proxy_token(head: Head) -> str:
    """The token of a proxy request: `Bearer <token>`, or `Basic` with user `valet`. Raises `BadPortalRequest` (407)."""
    scheme, _, value = (head.field("proxy-authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and value:
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            raise BadPortalRequest(400, "Proxy-Authorization is malformed") from None
    raise BadPortalRequest(407, "the portal wants the sandbox's token in Proxy-Authorization")


def split_absolute(head: Head) -> tuple[Authority, bytes]:
    """For `GET http://host/path`: where to connect and the head to send there. Raises `BadPortalRequest` (400).

    `Connection: close`, because a second request on the connection might be for another host.
    """
    parts = urlsplit(head.target)
    if parts.scheme != "http":
        raise BadPortalRequest(400, f"{parts.scheme or head.target!r} is not proxied; use CONNECT")
    where = authority(parts.netloc.rpartition("@")[2], 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{head.method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in head.fields if name.lower() not in _HOP_BY_HOP]
    if head.field("host") is None:
        lines.append(f"Host: {parts.netloc.rpartition('@')[2]}")
    lines += ["Connection: close", "", ""]
    return where, "\r\n".join(lines).encode("latin-1")


GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
"""To a request that asked whether it may send its body."""


def answer(status: int, body: bytes) -> bytes:
    """A whole answer in JSON."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def content(size: int) -> bytes:
    """The head of an answer that is `size` bytes of anything."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n".encode()


def established() -> bytes:
    """The answer to a CONNECT that succeeded."""
    return b"HTTP/1.1 200 Connection established\r\n\r\n"


def refusal(status: int, reason: str) -> bytes:
    """An answer that ends the connection; the reason is its body."""
    body = reason.encode() + b"\n"
    challenge = 'Proxy-Authenticate: Basic realm="valet"\r\n' if status == 407 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"{challenge}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
