"""A sandbox's connection to model providers: requests in, the providers' answers streamed back."""

import asyncio
from collections.abc import AsyncIterator

import httptools
import httpx
import msgspec
from valet_service import logs

from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import routes
from valet_sandbox_controller.portal.model_client import ModelClients
from valet_sandbox_controller.portal.routes import Destination, Route
from valet_sandbox_controller.portal.splice import as_transport

_log = logs.get(__name__)

_NOT_PASSED_ON = frozenset(
    (
        *routes.TOKEN_FIELDS,
        "host",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
        "te",
        "trailer",
        "expect",
    )
)
_NOT_PASSED_BACK = frozenset(("connection", "keep-alive", "transfer-encoding", "upgrade", "trailer"))
_END = b""


class ErrorBody(msgspec.Struct, frozen=True):
    """The shape in which every model SDK reads an error."""

    error: "ErrorDetail"


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, for people and for programs."""

    message: str
    type: str
    code: str


class ModelConnection(asyncio.Protocol):
    """Parses requests and answers them one after the other; a closed connection ends the provider's request at once."""

    def __init__(self, *, secret: bytes, table: dict[str, Route], clients: ModelClients) -> None:
        self._secret = secret
        self._table = table
        self._clients = clients
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reset()

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_transport(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            _log.info("model_request_malformed", error=str(error))
            self._transport.abort()

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
        method = self._parser.get_method().decode()
        names = {name.lower() for name, _ in self._fields}
        has_body = bool(names & {"content-length", "transfer-encoding"})
        self._task = asyncio.create_task(self._answer(method, self._target.decode("latin-1"), has_body))

    def on_body(self, body: bytes) -> None:
        assert self._transport
        self._body.put_nowait(body)
        if self._body.qsize() > limits.MODEL_BODY_CHUNKS:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._body.put_nowait(_END)

    # -- the answer

    async def _answer(self, method: str, target: str, has_body: bool) -> None:
        assert self._transport
        transport = self._transport
        started = False
        try:
            session = self._verify()
            where = routes.destination(self._table, target)
            request = self._request(method, where, has_body)
            async with self._clients.send(request, direct=where.route.direct) as response:
                self._begin(response)
                started = True
                await self._pass_on(response)
        except BadPortalRequest as refused:
            await self._fail(started, refused.status, refused.reason, "portal_refused")
        except httpx.HTTPError as error:
            _log.warning("model_provider_failed", target=target.partition("?")[0], error=repr(error))
            await self._fail(started, 502, _words(error, target), "provider_unreachable")
        else:
            _log.debug("model_answered", session=session.session_id, target=target.partition("?")[0])
        self._task = None
        if not self._keep_alive or not self._body_read():
            transport.close()

    def _verify(self) -> portal_token.Bearer:
        for name, value in self._fields:
            if name.lower() in routes.TOKEN_FIELDS:
                scheme, _, token = value.rpartition(" ")
                if scheme.lower() in ("", "bearer"):
                    try:
                        return portal_token.verify(self._secret, token)
                    except BadPortalRequest as refused:
                        raise BadPortalRequest(401, refused.reason) from None
        raise BadPortalRequest(401, "the portal wants the sandbox's token in place of the provider's key")

    def _request(self, method: str, where: Destination, has_body: bool) -> httpx.Request:
        fields = [(name, value) for name, value in self._fields if name.lower() not in _NOT_PASSED_ON]
        if where.route.key is not None:
            bearer = where.route.key_header == "authorization"
            fields.append((where.route.key_header, f"Bearer {where.route.key}" if bearer else where.route.key))
        content = self._read_body() if has_body else None
        try:
            return httpx.Request(
                method, where.url, headers=fields, content=content, extensions={"timeout": self._clients.timeout}
            )
        except httpx.InvalidURL as error:
            raise BadPortalRequest(400, f"the path cannot be used: {error}") from None

    async def _read_body(self) -> AsyncIterator[bytes]:
        assert self._transport
        while True:
            chunk = await self._body.get()
            if chunk == _END:
                self._body_done = True
                return
            if self._body.qsize() == 0:
                self._transport.resume_reading()
            yield chunk

    def _begin(self, response: httpx.Response) -> None:
        assert self._transport
        fields = [(name, value) for name, value in response.headers.multi_items() if name not in _NOT_PASSED_BACK]
        self._chunked = "content-length" not in response.headers and response.status_code not in (204, 304)
        if self._chunked:
            fields.append(("transfer-encoding", "chunked"))
        lines = [f"HTTP/1.1 {response.status_code} {response.reason_phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _pass_on(self, response: httpx.Response) -> None:
        assert self._transport
        async for chunk in response.aiter_raw():
            if chunk:
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)
                await self._writable.wait()
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")

    async def _fail(self, started: bool, status: int, reason: str, code: str) -> None:
        assert self._transport
        if started:
            # half an answer: only a broken connection tells the agent that it is not whole
            self._transport.abort()
            return
        self._keep_alive = False
        body = msgspec.json.encode(ErrorBody(ErrorDetail(reason, "valet_portal", code)))
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)

    def _body_read(self) -> bool:
        # a provider may answer without reading the whole request; then the rest of it is still to come
        return self._body_done or (self._body.qsize() == 1 and self._body.get_nowait() == _END)

    def _reset(self) -> None:
        self._target = b""
        self._fields: list[tuple[str, str]] = []
        self._body: asyncio.Queue[bytes] = asyncio.Queue()
        self._body_done = False
        self._keep_alive = True
        self._chunked = False


def _words(error: httpx.HTTPError, target: str) -> str:
    provider = target.split("/", 3)[2]
    why = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"The model provider {provider!r} cannot be reached from the machine Valet runs on: {why}"
    if isinstance(error, httpx.ReadTimeout):
        return f"The model provider {provider!r} was silent for {limits.MODEL_IDLE_TIMEOUT:g} seconds"
    return f"The connection to the model provider {provider!r} failed: {why}"
