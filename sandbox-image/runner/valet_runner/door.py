"""What a service's door says to those who come while the service does not run. Pure.

The gateway tells it apart from what the service says itself by a header, and makes a page of it for a browser.
"""

import http
import re
from typing import Literal

import msgspec
from valet_protocol.errors import Problem

State = Literal["starting", "failed"]

HEADER = "X-Valet-Door"

_CODES: dict[State, tuple[str, str]] = {
    "starting": ("Starting", "service_starting"),
    "failed": ("Could not be started", "service_failed"),
}


def is_page(head: bytes) -> bool:
    """Whether a person's browser shows the answer as a page, which may say that it comes again."""
    if _field(head, b"upgrade"):
        return False
    shown_as = _field(head, b"sec-fetch-dest")
    if shown_as:
        return shown_as in (b"document", b"iframe", b"frame")
    return b"text/html" in _field(head, b"accept")


def answer(state: State, detail: str, *, retry_after: int) -> bytes:
    """The whole response: a problem document. `retry_after`: whole seconds."""
    title, code = _CODES[state]
    status = http.HTTPStatus.SERVICE_UNAVAILABLE
    body = msgspec.json.encode(Problem(title=title, status=status, detail=detail, code=code))
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        f"{HEADER}: {state}\r\nRetry-After: {retry_after}\r\nCache-Control: no-store\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _field(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"\r\n" + name + rb":[ \t]*([^\r]*)\r\n", head, re.IGNORECASE)
    return found[1].strip().lower() if found else b""
