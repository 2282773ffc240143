"""Both doors on one unix socket."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from valet_protocol.errors import Problem
from valet_protocol.tools import TOOLS

from valet_runner.tools import limits, mcp_tools, rest
from valet_runner.tools.running import Tools


def application(tools: Tools) -> Starlette:
    """The web application. It is for one run only.

    A call whose client goes away is carried out to its end: what it asked for may be done already.
    """
    manager = StreamableHTTPSessionManager(
        mcp_tools.server(tools), json_response=True, stateless=True, max_request_body_size=limits.BODY_BYTES
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    # without sessions there is nothing to listen for or to end: GET and DELETE are 405, as the protocol has it
    mcp = Route("/mcp", _Mcp(manager), methods=["POST"])
    return Starlette(
        routes=[*rest.routes(TOOLS, tools), mcp], lifespan=lifespan, exception_handlers={HTTPException: _not_a_tool}
    )


@contextlib.asynccontextmanager
async def serving(path: Path, tools: Tools) -> AsyncIterator[None]:
    """Serve on a unix socket, for this user only; what was there before is replaced."""
    with _listener(path) as listener:
        config = uvicorn.Config(
            application(tools),
            lifespan="on",
            log_config=None,
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=round(limits.STOP_TIMEOUT),
        )
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([running], timeout=limits.STOP_TIMEOUT * 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@contextlib.contextmanager
def _listener(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        umask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(umask)
        listener.listen(limits.BACKLOG)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """Signals are the runner's own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Mcp:
    """An ASGI application for a route: starlette takes a class's instance for one."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


async def _not_a_tool(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    detail = f"{request.method} {request.url.path} is no tool of this sandbox; the MCP server at /mcp lists them all."
    response = rest.problem(Problem(title=error.detail, status=error.status_code, code=code, detail=detail))
    response.headers.update(error.headers or {})
    return response
