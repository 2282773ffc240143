"""Answers of the gateway itself: refusals as problem documents, or as a page for whoever reads them in a browser."""

import html

import msgspec
from aiohttp import web
from multidict import CIMultiDict
from valet_protocol.errors import Problem, Refused

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{detail}</p><p><small>{status} {code}</small></p></body></html>
"""

_SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def document(body: object, *, status: int = 200, content_type: str = "application/json") -> web.Response:
    """A JSON document."""
    return web.Response(
        status=status, body=msgspec.json.encode(body), headers={**_SAFE_HEADERS, "Content-Type": content_type}
    )


def problem(refused: Refused, *, page: bool = False) -> web.Response:
    """A refusal. `page`: for a person's browser, not for a program."""
    said = refused.problem()
    if not page:
        return document(said, status=said.status, content_type="application/problem+json")
    text = _PAGE.format(
        title=html.escape(said.title), detail=html.escape(said.detail), status=said.status, code=html.escape(said.code)
    )
    return web.Response(
        status=said.status, body=text.encode(), headers={**_SAFE_HEADERS, "Content-Type": "text/html; charset=utf-8"}
    )


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
