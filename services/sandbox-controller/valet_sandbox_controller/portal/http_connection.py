"""A sandbox's connection on which the portal itself answers: requests parsed, bodies streamed, one after the other."""

import asyncio
from collections.abc import AsyncIterator

import httptools
import msgspec
from valet_service import logs

from valet_sandbox_controller import limits
from valet_sandbox_controller.portal.splice import as_transport

_log = logs.get(__name__)
_END = b""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    has_body: bool

    def field(self, name: str) -> str | None:
        """The first field of that name (given in small letters)."""
        return next((value for key, value in self.fields if key.lower() == name), None)


class HttpConnection(asyncio.Protocol):
    """Parses requests and has a subclass answer each; a closed connection cancels the answer at once."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reset()

    async def answer(self, request: Request) -> None:
        """Write the whole answer, with `write`. What it raises ends the connection; subclasses refuse in words."""
        raise NotImplementedError

    # -- for subclasses

    @property
    def transport(self) -> asyncio.Transport:
        """The sandbox's side."""
        assert self._transport
        return self._transport

    async def write(self, data: bytes) -> None:
        """Send; waits while the sandbox does not read."""
        self.transport.write(data)
        await self._writable.wait()

    def close_after_answer(self) -> None:
        """This connection takes no further request."""
        self._keep_alive = False

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body as it comes; the sandbox is held back while nobody reads it."""
        while True:
            chunk = await self._body.get()
            if chunk == _END:
                self._body_read = True
                return
            if self._body.qsize() == 0:
                self.transport.resume_reading()
            yield chunk

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_transport(transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            _log.info("request_malformed", error=str(error))
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- the parser

    def on_message_begin(self) -> None:
        if self._task is not None:
            raise httptools.HttpParserError("a second request before the answer to the first")
        self._reset()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._keep_alive = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self._fields}
        request = Request(
            method=self._parser.get_method().decode(),
            target=self._target.decode("latin-1"),
            fields=tuple(self._fields),
            has_body=bool(names & {"content-length", "transfer-encoding"}),
        )
        self._task = asyncio.create_task(self._run(request))

    def on_body(self, body: bytes) -> None:
        if self._discarding:
            return
        self._body.put_nowait(body)
        if self._body.qsize() > limits.BODY_CHUNKS:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        self._body.put_nowait(_END)
        if self._discarding:
            self.transport.close()

    # -- the answer

    async def _run(self, request: Request) -> None:
        try:
            await self.answer(request)
        except Exception as error:  # noqa: BLE001 - one request's trouble must not be more than its own
            _log.exception("request_failed", target=request.target.partition("?")[0], error=str(error))
            self.transport.abort()
        self._task = None
        if not self._whole():
            # an answer came before the body did: were the connection closed now, its sender would see that it broke
            # and not the answer
            self._discarding = True
            self.transport.resume_reading()
            asyncio.get_running_loop().call_later(limits.LINGER, self.transport.close)
        elif not self._keep_alive:
            self.transport.close()

    def _whole(self) -> bool:
        while not self._body_read and not self._body.empty():
            self._body_read = self._body.get_nowait() == _END
        return self._body_read

    def _reset(self) -> None:
        self._target = b""
        self._fields: list[tuple[str, str]] = []
        self._body: asyncio.Queue[bytes] = asyncio.Queue()
        self._body_read = False
        self._discarding = False
        self._keep_alive = True
