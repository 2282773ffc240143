"""HTTP to a program in the sandbox and back, piece by piece."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import msgspec
from aiohttp import web
from valet_protocol.errors import Problem, TooLarge, Unavailable
from yarl import URL

from valet_gateway import headers, limits, pages, provider_documents
from valet_gateway.clients import Clients
from valet_gateway.directory import Backend
from valet_gateway.errors import BackendFailed, BackendSilent, NotStarted, NotYet
from valet_gateway.headers import Onward

_DOOR = "X-Valet-Door"
"""On what the runner's door answers in the place of a service that does not run: `starting` or `failed`."""

_SHOWN = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml", "application/xml", "text/xml"})
"""What a browser makes a page of that can be pressed."""

_SAFE_TWICE = frozenset({"GET", "HEAD", "OPTIONS"})


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may go on, and what is told to whom."""

    backend: Backend
    path: str
    query: str
    onward: Onward
    cookies: list[str]
    """`Set-Cookie` headers for whoever asked."""
    frames: str | None = None
    """The policy on who may show the program's pages in a frame; none for what has no pages."""
    if_absent: bytes | None = None
    """A JSON document to give where the program has nothing (404); none to pass that on."""
    readable_elsewhere: bool = False
    """Whether pages of other origins may read the response: they had to show a token for it."""
    keys_out: bool = False
    """Whether the response is looked through for keys of providers."""

    def url(self) -> URL:
        """What the program is asked for, byte for byte."""
        question = f"?{self.query}" if self.query else ""
        return URL(f"{self.backend.target.base}{self.path}{question}", encoded=True)


async def forward(request: web.BaseRequest, errand: Errand, clients: Clients) -> web.StreamResponse:
    """Ask the program and pass on what it says. Raises `BackendFailed`, `BackendSilent`, `NotYet`, `NotStarted`,
    `ConnectionError`."""
    upstream = await _ask(request, errand, clients)
    try:
        if errand.backend.has_door and _DOOR in upstream.headers:
            raise await _at_the_door(upstream, errand.backend)
        if errand.if_absent is not None and upstream.status == 404:
            return pages.raw_document(errand.if_absent)
        if errand.keys_out:
            return await _answer_without_keys(request, upstream, errand)
        return await _answer(request, upstream, errand)
    finally:
        upstream.close() if not upstream.content.is_eof() else upstream.release()


async def _ask(request: web.BaseRequest, errand: Errand, clients: Clients) -> aiohttp.ClientResponse:
    head = headers.to_backend(request.headers.items(), errand.onward)
    if errand.keys_out:
        head["Accept-Encoding"] = "identity"
    client = clients.to(errand.backend.target, fresh=request.method not in _SAFE_TWICE or request.can_read_body)
    try:
        async with asyncio.timeout(limits.SILENCE) as patience:
            body = None
            if request.can_read_body:
                if request.content_length is not None:
                    head["Content-Length"] = str(request.content_length)
                body = _pieces(request, patience)
            return await client.request(request.method, errand.url(), headers=head, data=body, allow_redirects=False)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError("whoever asked is gone") from None
        raise refusal(error, errand.backend) from None


async def _at_the_door(upstream: aiohttp.ClientResponse, backend: Backend) -> Unavailable:
    try:
        async with asyncio.timeout(limits.CONNECT):
            detail = msgspec.json.decode(await upstream.content.read(limits.DOOR_WORDS), type=Problem).detail
    except (TimeoutError, aiohttp.ClientError, msgspec.MsgspecError):
        detail = f"{_sentence(backend.title)} does not run at the moment."
    return NotStarted(detail) if upstream.headers[_DOOR] == "failed" else NotYet(detail)


def refusal(error: Exception, backend: Backend) -> BackendFailed | BackendSilent | NotYet:
    """What is said when a program does not answer."""
    if backend.has_door and isinstance(error, aiohttp.ClientConnectorError):  # it has ended, or its door opens again
        return NotYet(f"{_sentence(backend.title)} is being started again.")
    if backend.comes_back and isinstance(error, aiohttp.ClientConnectorError):
        return NotYet(backend.comes_back)
    where = _sentence(backend.title)
    if isinstance(error, aiohttp.ServerTimeoutError):  # it could not be reached
        return BackendFailed(f"{where} does not accept connections. {backend.advice}")
    if isinstance(error, TimeoutError):
        return BackendSilent(f"{where} has not answered for {limits.SILENCE:.0f} s. {backend.advice}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return BackendFailed(f"{where} is not there: nothing listens. {backend.advice}")
    return BackendFailed(f"{where} broke the connection off without an answer. {backend.advice}")


def _sentence(title: str) -> str:
    return title[0].upper() + title[1:]


async def _pieces(request: web.BaseRequest, patience: asyncio.Timeout) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    while piece := await request.content.readany():
        yield piece
        with contextlib.suppress(RuntimeError):  # the response has begun, and has time-outs of its own
            patience.reschedule(loop.time() + limits.SILENCE)


async def _answer(request: web.BaseRequest, upstream: aiohttp.ClientResponse, errand: Errand) -> web.StreamResponse:
    response = _head(upstream, errand)
    length = upstream.headers.get("Content-Length", "")
    if length.isdecimal() and "Transfer-Encoding" not in upstream.headers:
        response.content_length = int(length)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        while True:
            async with asyncio.timeout(limits.BODY_SILENCE):
                piece = await upstream.content.readany()
            if not piece:
                return response
            async with asyncio.timeout(limits.STALLED):
                await response.write(piece)
    except (TimeoutError, aiohttp.ClientError) as error:
        # the head is out: all that can be said now is that the body is not whole
        raise ConnectionResetError("the response broke off") from error


async def _answer_without_keys(
    request: web.BaseRequest, upstream: aiohttp.ClientResponse, errand: Errand
) -> web.StreamResponse:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.SILENCE):
            async for piece in upstream.content.iter_any():
                body += piece
                if len(body) > limits.DOCUMENT_BYTES:
                    raise TooLarge("document", f"What it says is larger than {limits.DOCUMENT_BYTES} bytes.")
    except (TimeoutError, aiohttp.ClientError) as error:
        raise refusal(error, errand.backend) from None
    try:
        cleaned = provider_documents.without_keys(bytes(body)) if body else b""
    except ValueError:
        raise BackendFailed("What the agent's server said is no JSON, so it cannot be searched for keys.") from None
    response = _head(upstream, errand)
    response.content_length = len(cleaned)
    await response.prepare(request)
    if request.method != "HEAD":
        await response.write(cleaned)
    return response


def _head(upstream: aiohttp.ClientResponse, errand: Errand) -> web.StreamResponse:
    head = headers.from_backend(
        upstream.headers.items(),
        prefix=errand.onward.prefix,
        target=errand.backend.target,
        host=errand.onward.host,
    )
    for cookie in errand.cookies:
        head.add("Set-Cookie", cookie)
    if errand.readable_elsewhere:
        head["Access-Control-Allow-Origin"] = "*"
        head["Access-Control-Expose-Headers"] = "Valet-Offset"
    if errand.frames and ("Content-Type" not in head or upstream.content_type in _SHOWN):
        head.add("Content-Security-Policy", errand.frames)  # beside the program's own: a browser keeps to both
    if "Server" not in head:
        head["Server"] = "valet"
    return web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=head)
