"""Answers of the gateway itself: refusals as problem documents, or as a page for whoever reads them in a browser."""

import base64
import hashlib
import html
from collections.abc import Iterable

import msgspec
from aiohttp import web
from multidict import CIMultiDict
from valet_protocol.errors import Problem, Refused

from valet_gateway import limits
from valet_gateway.errors import MethodRefused, NotStarted

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:18vh auto 0;padding:0 1.5em}"
    "h1{font-size:1.4em;font-weight:600}"
    "p{white-space:pre-wrap;overflow-wrap:anywhere}"
    "small{opacity:.6}"
    ".turning{display:inline-block;width:.7em;height:.7em;margin-right:.5em;border:.12em solid;border-radius:50%;"
    "border-right-color:transparent;animation:turn 1s linear infinite}"
    "@keyframes turn{to{transform:rotate(1turn)}}"
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><link rel="icon" href="data:,">{head}<style>{style}</style></head>
<body><h1>{mark}{title}</h1><p>{detail}</p>{again}<p><small>{status} {code}</small></p></body>
</html>
"""
_AGAIN = '<p><a href="">Try again</a></p>'
_TURNING = '<span class="turning"></span>'

_RPC_SERVER_ERROR = -32_000
"""Of JSON-RPC's codes the first for whatever a server makes of them."""

_SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE_HEADERS = {
    **_SAFE_HEADERS,
    "Content-Security-Policy": f"default-src 'none'; img-src data:; style-src 'sha256-{_STYLE_HASH}'",
    "Content-Type": "text/html; charset=utf-8",
}


def document(body: object, *, status: int = 200, content_type: str = "application/json") -> web.Response:
    """A JSON document."""
    return web.Response(
        status=status, body=msgspec.json.encode(body), headers={**_SAFE_HEADERS, "Content-Type": content_type}
    )


def raw_document(body: bytes) -> web.Response:
    """A JSON document that is made already."""
    return web.Response(body=body, headers={**_SAFE_HEADERS, "Content-Type": "application/json"})


def problem(refused: Refused, *, page: bool = False) -> web.Response:
    """A refusal. `page`: for a person's browser, not for a program; it comes again by itself for what is starting."""
    said = refused.problem()
    failed = isinstance(refused, NotStarted)
    retry: dict[str, str] = {}
    allow = {"Allow": ", ".join(refused.allowed)} if isinstance(refused, MethodRefused) else {}
    if said.status == 503:
        retry = {"Retry-After": str(limits.RETRY_AFTER_FAILURE if failed else limits.RETRY_AFTER)}
    if not page:
        response = document(said, status=said.status, content_type="application/problem+json")
        response.headers.update({**retry, **allow})
        return response
    comes = bool(retry) and not failed
    text = _PAGE.format(
        title=html.escape(said.title),
        detail=html.escape(said.detail),
        status=said.status,
        code=html.escape(said.code),
        head=f'<meta http-equiv="refresh" content="{limits.RETRY_AFTER}">' if comes else "",
        mark=_TURNING if comes else "",
        again=_AGAIN if said.status >= 500 else "",
        style=_STYLE,
    )
    return web.Response(status=said.status, body=text.encode(), headers={**_PAGE_HEADERS, **retry, **allow})


def rpc_problem(refused: Refused, call: str | int | None) -> web.Response:
    """A refusal for a client of JSON-RPC, which shows people an error's message and no problem document's."""
    said = refused.problem()
    error = {"code": _RPC_SERVER_ERROR, "message": said.detail, "data": said}
    response = document({"jsonrpc": "2.0", "id": call, "error": error}, status=said.status)
    response.headers["Retry-After"] = str(limits.RETRY_AFTER)
    return response


def frames(ancestors: Iterable[str]) -> str:
    """The policy on who may show a page in a frame: pages of its own origin and these origins."""
    return " ".join(("frame-ancestors 'self'", *ancestors))


def bare(status: int, detail: str) -> web.Response:
    """A refusal of what is no request at all."""
    said = Problem(title="Bad request" if status < 500 else "Failed", status=status, detail=detail, code="bad_request")
    return document(said, status=status, content_type="application/problem+json")


def preflight() -> web.Response:
    """For a browser that asks whether a page of another origin may send a token here: it may, without cookies."""
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID",
        "Access-Control-Max-Age": "600",
    }
    return web.Response(status=204, headers=headers)


def redirect(location: str, *, status: int) -> web.Response:
    """Send a browser elsewhere on this gateway."""
    headers: CIMultiDict[str] = CIMultiDict(_SAFE_HEADERS)
    headers["Location"] = location
    return web.Response(status=status, headers=headers)
