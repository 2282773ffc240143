"""Connections to the programs in the sandbox."""

import asyncio
import contextlib

import aiohttp

from valet_gateway import limits
from valet_gateway.targets import Target

_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Clients:
    """HTTP clients that add nothing to a request, follow nothing and remember nothing."""

    def __init__(self) -> None:
        self._kept: dict[str | None, aiohttp.ClientSession] = {}
        self._fresh: dict[str | None, aiohttp.ClientSession] = {}

    def to(self, target: Target, *, fresh: bool) -> aiohttp.ClientSession:
        """The client for a program. `fresh`: with a new connection for each request, so that no request that must not
        be sent twice meets one the program was just closing."""
        clients = self._fresh if fresh else self._kept
        client = clients.get(target.path)
        if client is None:
            client = clients[target.path] = _client(target, fresh=fresh)
        return client

    async def close(self) -> None:
        """Close every connection."""
        for client in (*self._kept.values(), *self._fresh.values()):
            await client.close()


class Declined(Exception):
    """A program answered a WebSocket's handshake like an ordinary request: its status and what it said."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def _hear_refusals(request: aiohttp.ClientRequest, go_on: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Read why a WebSocket is refused, before the library closes the response. Raises `Declined`."""
    response = await go_on(request)
    if response.status == 101 or request.headers.get("Upgrade", "").lower() != "websocket":
        return response
    body = b""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(limits.REFUSAL_WAIT):
            while len(body) < limits.REFUSAL_BYTES and (piece := await response.content.readany()):
                body += piece
    response.close()
    raise Declined(response.status, body[: limits.REFUSAL_BYTES])


def _client(target: Target, *, fresh: bool) -> aiohttp.ClientSession:
    if target.path:
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(target.path, limit=limits.CONNECTIONS_EACH, force_close=True)
            if fresh
            else aiohttp.UnixConnector(target.path, limit=limits.CONNECTIONS_EACH, keepalive_timeout=limits.IDLE_KEPT)
        )
    else:
        connector = (
            aiohttp.TCPConnector(limit=limits.CONNECTIONS_EACH, force_close=True)
            if fresh
            else aiohttp.TCPConnector(limit=limits.CONNECTIONS_EACH, keepalive_timeout=limits.IDLE_KEPT)
        )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        requote_redirect_url=False,
        skip_auto_headers=_AUTOMATIC,
        middlewares=(_hear_refusals,),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.CONNECT),
        read_bufsize=limits.READ_BYTES,
        max_line_size=limits.LINE_BYTES,
        max_field_size=limits.FIELD_BYTES,
    )
