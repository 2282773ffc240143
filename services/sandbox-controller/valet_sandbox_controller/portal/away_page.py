"""What people get who wait at a port whose gateway does not come back in time. Pure."""

import html
import re

import msgspec
from valet_protocol.errors import Problem

from valet_sandbox_controller import limits

_DETAIL = "The sandbox is starting again. This takes a few seconds."
_REQUEST = re.compile(rb"[A-Z]{3,16} [!-~]+ HTTP/1\.[01]\r?\n")
_SHOWN = re.compile(rb"\r\n(?:sec-fetch-dest:[ \t]*(?:document|iframe|frame)|accept:[^\r]*text/html)", re.IGNORECASE)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="{wait}"><title>Starting</title><link rel="icon" href="data:,">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:18vh auto 0;\
padding:0 1.5em}}</style></head>
<body><h1>Starting</h1><p>{detail}</p></body></html>
"""


def answer(said: bytes) -> bytes | None:
    """The response to the beginning of a request; none for what is no HTTP."""
    if not _REQUEST.match(said):
        return None
    if _SHOWN.search(said):
        kind = "text/html; charset=utf-8"
        body = _PAGE.format(wait=limits.AWAY_RETRY, detail=html.escape(_DETAIL)).encode()
    else:
        kind = "application/problem+json"
        body = msgspec.json.encode(Problem(title="Starting", status=503, detail=_DETAIL, code="sandbox_starting"))
    head = (
        f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Retry-After: {limits.AWAY_RETRY}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if said.startswith(b"HEAD ") else body)
