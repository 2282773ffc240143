"""A sandbox's connection to model providers: requests in, the providers' answers streamed back."""

import httpx
import msgspec
from valet_service import logs

from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import routes
from valet_sandbox_controller.portal.epochs import Epochs
from valet_sandbox_controller.portal.http_connection import HttpConnection, Request
from valet_sandbox_controller.portal.model_client import ModelClients
from valet_sandbox_controller.portal.routes import Destination, Route

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


class ErrorBody(msgspec.Struct, frozen=True):
    """The shape in which every model SDK reads an error."""

    error: "ErrorDetail"


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, for people and for programs."""

    message: str
    type: str
    code: str


class ModelConnection(HttpConnection):
    """Passes requests on, one after the other; a closed connection ends the provider's request at once."""

    def __init__(self, *, secret: bytes, epochs: Epochs, table: dict[str, Route], clients: ModelClients) -> None:
        super().__init__()
        self._secret = secret
        self._epochs = epochs
        self._table = table
        self._clients = clients

    async def answer(self, request: Request) -> None:
        started = False
        try:
            bearer = self._verify(request)
            with self._epochs.admit(bearer) as leave:
                leave.hold(self.transport.abort)
                where = routes.destination(self._table, request.target)
                outgoing = self._request(request, where)
                async with self._clients.send(outgoing, direct=where.route.direct) as response:
                    chunked = self._begin(response)
                    started = True
                    await self._pass_on(response, chunked)
        except BadPortalRequest as refused:
            await self._fail(started, refused.status, refused.reason, "portal_refused")
        except httpx.HTTPError as error:
            _log.warning("model_provider_failed", target=request.target.partition("?")[0], error=repr(error))
            await self._fail(started, 502, _words(error, request.target), "provider_unreachable")
        else:
            _log.debug("model_answered", session=bearer.session_id, target=request.target.partition("?")[0])

    def _verify(self, request: Request) -> portal_token.Bearer:
        for name, value in request.fields:
            if name.lower() in routes.TOKEN_FIELDS:
                scheme, _, token = value.rpartition(" ")
                if scheme.lower() in ("", "bearer"):
                    try:
                        return portal_token.verify(self._secret, token)
                    except BadPortalRequest as refused:
                        raise BadPortalRequest(401, refused.reason) from None
        raise BadPortalRequest(401, "the portal wants the sandbox's token in place of the provider's key")

    def _request(self, request: Request, where: Destination) -> httpx.Request:
        fields = [(name, value) for name, value in request.fields if name.lower() not in _NOT_PASSED_ON]
        if where.route.key is not None:
            bearer = where.route.key_header == "authorization"
            fields.append((where.route.key_header, f"Bearer {where.route.key}" if bearer else where.route.key))
        try:
            return httpx.Request(
                request.method,
                where.url,
                headers=fields,
                content=self.body() if request.has_body else None,
                extensions={"timeout": self._clients.timeout},
            )
        except httpx.InvalidURL as error:
            raise BadPortalRequest(400, f"the path cannot be used: {error}") from None

    def _begin(self, response: httpx.Response) -> bool:
        """Write the head; whether the body goes in chunks."""
        fields = [(name, value) for name, value in response.headers.multi_items() if name not in _NOT_PASSED_BACK]
        chunked = "content-length" not in response.headers and response.status_code not in (204, 304)
        if chunked:
            fields.append(("transfer-encoding", "chunked"))
        lines = [f"HTTP/1.1 {response.status_code} {response.reason_phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        return chunked

    async def _pass_on(self, response: httpx.Response, chunked: bool) -> None:
        async for chunk in response.aiter_raw():
            if chunk:
                await self.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
        if chunked:
            self.transport.write(b"0\r\n\r\n")

    async def _fail(self, started: bool, status: int, reason: str, code: str) -> None:
        if started:
            # half an answer: only a broken connection tells the agent that it is not whole
            self.transport.abort()
            return
        self.close_after_answer()
        body = msgspec.json.encode(ErrorBody(ErrorDetail(reason, "valet_portal", code)))
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        await self.write(head.encode() + body)


def _words(error: httpx.HTTPError, target: str) -> str:
    provider = target.split("/", 3)[2]
    why = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"The model provider {provider!r} cannot be reached from the machine Valet runs on: {why}"
    if isinstance(error, httpx.ReadTimeout):
        return f"The model provider {provider!r} was silent for {limits.MODEL_IDLE_TIMEOUT:g} seconds"
    return f"The connection to the model provider {provider!r} failed: {why}"
