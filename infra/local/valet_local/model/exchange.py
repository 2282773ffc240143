"""One HTTP exchange of the server: reading the request, answering it, noticing that the client has gone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from valet_local.model import limits
from valet_local.model.errors import RequestRefused
from valet_local.model.frames import Break, Moment, Send, Wait

_JSON = b"application/json"
_EVENTS = b"text/event-stream"


class Exchange:
    """One request and its response. `gone` is set when the client has left or the server stops."""

    def __init__(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self.method = scope["method"]
        self.path = scope["path"]
        self.gone = asyncio.Event()
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._receive = receive
        self._send = send

    def header(self, name: str) -> str:
        """A request header, by its lower-case name; empty if absent."""
        return self._headers.get(name, "")

    async def body(self) -> bytes:
        """The request's body. Raises RequestRefused if it is too large or does not come."""
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                message = await asyncio.wait_for(self._receive(), limits.BODY_SECONDS)
            except TimeoutError:
                raise RequestRefused(408, f"no more of the body came for {limits.BODY_SECONDS:.0f} s") from None
            if message["type"] != "http.request":
                raise RequestRefused(400, "the client left before its request was complete")
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limits.BODY_BYTES:
                raise RequestRefused(413, f"the body is over {limits.BODY_BYTES} bytes")
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def answer(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send a whole JSON response."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [(b"content-type", _JSON), length, *headers])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Within it `gone` is set as soon as the client leaves."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def play(self, moments: Iterable[Moment]) -> None:
        """Carry out a stream. It ends early when the client leaves.

        The response is left incomplete after a Break; uvicorn then closes the connection, as a dying server would.
        """
        started = False
        pending: list[bytes] = []
        loop = asyncio.get_running_loop()
        due = loop.time()

        async def flush(*, more: bool) -> None:
            nonlocal started
            if not started:
                await self._start(200, [(b"content-type", _EVENTS), (b"cache-control", b"no-cache")])
                started = True
            await self._send({"type": "http.response.body", "body": b"".join(pending), "more_body": more})
            pending.clear()

        for moment in moments:
            match moment:
                case Send():
                    pending.append(moment.data)
                    if len(pending) >= limits.FRAMES_PER_WRITE:
                        await flush(more=True)
                        await asyncio.sleep(0)  # a long burst must not keep other sessions waiting
                case Wait():
                    if pending:
                        await flush(more=True)
                    due = max(due, loop.time() - moment.ms / 1000) + moment.ms / 1000  # no drift, no catching up
                    await self._pause(due - loop.time())
                case Break():
                    await flush(more=True)
                    return
            if self.gone.is_set():
                return
        await flush(more=False)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers, "trailers": False})

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            return
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            return

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()
