"""How many WebSockets and event streams there are, and what each is given."""

import asyncio
import contextlib
from collections.abc import Iterator

from aiohttp import web
from valet_protocol.errors import BadRequest, Refused, TooMany

from valet_processes import limits


class Connections:
    """Counts them."""

    def __init__(self) -> None:
        self._count = 0

    @contextlib.contextmanager
    def one(self, request: web.Request) -> Iterator[None]:
        """Around one of them. Raises `TooMany`. Afterwards it has a while to take what was sent; then it is dropped,
        unless it never became one and serves other requests."""
        if self._count >= limits.CONNECTIONS_MAX:
            raise TooMany("too_many_connections", f"{self._count} connections are open; close one that is not needed")
        self._count += 1
        transport = request.transport
        try:
            yield
        except (web.HTTPException, Refused):
            transport = None
            raise
        finally:
            self._count -= 1
            if transport:
                asyncio.get_running_loop().call_later(limits.HEARTBEAT, transport.abort)


def websocket(request: web.Request) -> web.WebSocketResponse:
    """A WebSocket that answers pings and is not compressed: this is one machine. Raises `BadRequest` where the request
    is for none."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise BadRequest("websocket_wanted", f"{request.path} is a WebSocket; connect to it with a client for these")
    return web.WebSocketResponse(
        heartbeat=limits.HEARTBEAT,
        timeout=limits.CLOSE_TIMEOUT,
        compress=False,
        max_msg_size=limits.INPUT_BYTES,
    )
