"""The gateway's server: every request is judged here, then handed on."""

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web
from valet_protocol.errors import Refused
from valet_protocol.sandbox_spec import GatewaySpec
from valet_service import logs

from valet_gateway import (
    admission,
    cookies,
    forwarding,
    headers,
    limits,
    origins,
    pages,
    provider_documents,
    queries,
    routes,
    sockets,
)
from valet_gateway.admission import Admitted, Door, Shown
from valet_gateway.clients import Clients
from valet_gateway.directory import Directory
from valet_gateway.errors import MethodRefused, NotAdmitted, NotYet, WorkerRefused
from valet_gateway.forwarding import Errand
from valet_gateway.headers import Onward
from valet_gateway.routes import Route
from valet_gateway.sockets import Sockets
from valet_gateway.terminal import Terminal
from valet_gateway.visits import Visits

log = logs.get(__name__)

_FOR_PROGRAMS = frozenset({"processes", "tools", "opencode"})
"""Kinds of routes behind which are no pages."""

_FOR_PAGES_ELSEWHERE = frozenset({"processes", "tools"})
"""Interfaces for programs, which the web app is too: its pages are of another origin and show a token."""


class _Rpc(msgspec.Struct, frozen=True, kw_only=True):
    id: str | int | None = None


class Connection(web.RequestHandler):
    """One connection, which never writes what came on it into a log: a bad request line may hold a token."""

    __slots__ = ("let_in",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.let_in = False
        together = self._manager.together if isinstance(self._manager, Connections) else []
        if sum(len(each.connections) for each in together) >= limits.CONNECTIONS:
            known = (one for each in together for one in each.connections if isinstance(one, Connection))
            stranger = next((one for one in known if not one.let_in), None)
            log.warning(
                "too_many_connections", limit=limits.CONNECTIONS, closed="new" if stranger is None else "oldest"
            )
            if stranger is None:
                transport.close()
                return
            stranger.force_close()
            stranger.let_in = True  # it is not gone at once, and not to be chosen twice
        super().connection_made(transport)

    def log_exception(self, *args: object, **kw: object) -> None:
        error = kw.get("exc_info")
        log.error("request_failed", error=type(error).__name__)

    def log_debug(self, *args: object, **kw: object) -> None:
        pass

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            # the head is out: all there is to say is that the body is not whole
            raise ConnectionResetError("the response broke off")
        log.info("not_understood", status=status, error=type(exc).__name__)
        response = pages.bare(status, "This is no HTTP request the gateway understands, or its head is too large.")
        response.force_close()
        return response


class Connections(web.Server):
    """Makes a `Connection` for each that comes, up to a number, which those that are served together share."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        together: "list[Connections] | None" = None,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.together = [] if together is None else together
        self.together.append(self)

    async def shutdown(self, timeout: float | None = None) -> None:
        if self in self.together:
            self.together.remove(self)
        await super().shutdown(timeout)

    def __call__(self) -> web.RequestHandler:
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.HEAD_WAIT,
            access_log=None,  # pyright: ignore[reportArgumentType]  (none is how aiohttp is told of none)
            max_line_size=limits.LINE_BYTES,
            max_field_size=limits.FIELD_BYTES,
            max_headers=limits.HEADERS,
            lingering_time=limits.LINGER,
            read_bufsize=limits.READ_BYTES,
            auto_decompress=False,
        )


class Gateway:
    """Judges requests and hands them on."""

    def __init__(self, spec: GatewaySpec, directory: Directory) -> None:
        self._door = Door(session_id=spec.session_id, key=spec.key, tools_token=spec.tools_token)
        self._secure = spec.secure
        self._frames = pages.frames(spec.frame_ancestors)
        self._directory = directory
        self._clients = Clients()
        self._sockets = Sockets()
        self.visits = Visits(self._sockets)
        self._terminal = Terminal(
            directory=directory,
            clients=self._clients,
            sockets=self._sockets,
            xterm=Path(spec.xterm_dir) if spec.xterm_dir else None,
            frames=self._frames,
        )

    def of_tunnel(self, name: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """What answers requests at a tunnel's own address."""
        return lambda request: self.handle(request, name)

    async def handle(self, request: web.BaseRequest, tunnel: str | None = None) -> web.StreamResponse:
        """Answer one request. `tunnel`: the one at whose own address it came, if it is one's."""
        try:
            return await self._answer(request, tunnel)
        except NotAdmitted as refused:
            log.info("not_admitted", method=request.method, area=_area(request), reason=refused.reason)
            return pages.problem(refused, page=_is_page(request))
        except Refused as refused:
            if refused.status >= 500:
                log.warning("not_answered", area=_area(request), code=refused.code)
            return pages.problem(refused, page=_is_page(request))

    async def close(self) -> None:
        """End what is open."""
        await self._sockets.close()
        await self._clients.close()

    async def _answer(self, request: web.BaseRequest, tunnel: str | None) -> web.StreamResponse:
        fields = list(request.headers.items())
        headers.check(request.method, (request.version.major, request.version.minor), fields)
        host = origins.check_host(request.headers.getall("Host", []))
        path, _, query = request.raw_path.partition("?")
        route = routes.find(path) if tunnel is None else routes.of_tunnel(tunnel, path)
        if tunnel is not None and request.headers.get("Service-Worker") is not None:
            raise WorkerRefused
        routes.check_query(query)
        if route.kind == "health":
            return self._health(request)
        if _is_preflight(request) and route.kind in _FOR_PAGES_ELSEWHERE:
            return pages.preflight()
        taken = queries.take(query)
        shown = self._shown(request, taken.token)
        admitted = admission.admit(route, shown, self._door, self.visits.access, time.time())
        if isinstance(request.protocol, Connection):
            request.protocol.let_in = True
        with self.visits.visit(admitted, request):
            return await self._lead(request, route, path, taken, host, admitted)

    async def _lead(
        self,
        request: web.BaseRequest,
        route: Route,
        path: str,
        taken: queries.Taken,
        host: str,
        admitted: Admitted,
    ) -> web.StreamResponse:
        """Answer somebody who came in."""
        upgrade = _is_upgrade(request)
        if admitted.by == "cookie":
            origins.check_cookie_use(
                method=request.method,
                upgrade=upgrade,
                host=host,
                origin=request.headers.get("Origin"),
                site=request.headers.get("Sec-Fetch-Site"),
                mode=request.headers.get("Sec-Fetch-Mode"),
            )
        given = self._cookies(admitted)
        away = self._elsewhere(request, route, path, taken)
        if away is not None:
            for cookie in given:
                away.headers.add("Set-Cookie", cookie)
            return away
        if route.name == "ttyd" and "ttyd" not in self._directory.services:
            return await self._terminal.answer(request, route.path, given, upgrade=upgrade)
        errand = self._errand(request, route, host, taken.query, admitted, given)
        return await self._hand_on(request, route, errand, upgrade)

    def _shown(self, request: web.BaseRequest, url_token: str | None) -> Shown:
        jar = request.headers.getall("Cookie", [])
        peer = _peer(request)
        return Shown(
            inside=peer is not None and ipaddress.ip_address(peer.partition("%")[0]).is_loopback,
            url_token=url_token,
            bearer=admission.bearer(request.headers.get("Authorization")),
            cookies=cookies.shown(self._door.key, self._door.session_id, jar) if jar else (),
        )

    def _cookies(self, admitted: Admitted) -> list[str]:
        if admitted.grant is None:
            return []
        return cookies.given(self._door.key, self._door.session_id, admitted.grant, secure=self._secure)

    def _elsewhere(
        self, request: web.BaseRequest, route: Route, path: str, taken: queries.Taken
    ) -> web.Response | None:
        """Where a browser is sent instead, if it is: away from an address with a token, which the page it opens could
        read, and to where relative links work."""
        if request.method not in ("GET", "HEAD"):
            return None
        query = f"?{taken.query}" if taken.query else ""
        if not route.path:
            return pages.redirect(f"{path}/{query}", status=308)
        if desktop := routes.desktop_page(route, taken.query):
            return pages.redirect(desktop, status=303)
        if taken.token and _is_page(request):
            # two slashes at the start would be another host
            return pages.redirect(f"/{path.lstrip('/')}{query}", status=303)
        if route.kind == "tunnel" and not route.prefix and path == "/" and self._directory.keeps_prefix(route.name):
            return pages.redirect(f"/t/{route.name}/{query}", status=307)
        return None

    def _errand(
        self, request: web.BaseRequest, route: Route, host: str, query: str, admitted: Admitted, given: list[str]
    ) -> Errand:
        if route.kind == "opencode":
            provider_documents.check(route.path)
        backend = self._directory.find(route)
        return Errand(
            backend=backend,
            path=f"{route.prefix}{route.path}" if backend.keeps_prefix else route.path or "/",
            query=query,
            onward=Onward(
                host=host,
                prefix=route.prefix,
                prefix_kept=backend.keeps_prefix,
                secure=self._secure,
                peer=_peer(request),
                subject=admitted.subject,
                authorization=backend.authorization,
                keep_authorization=not admitted.authorization_is_ours and backend.authorization is None,
            ),
            cookies=given,
            frames=None if route.kind in _FOR_PROGRAMS else self._frames,
            if_absent=routes.if_absent(route),
            readable_elsewhere=admitted.by == "token" and route.kind in _FOR_PAGES_ELSEWHERE,
            keys_out=route.kind == "opencode" and provider_documents.holds_keys(route.path),
        )

    async def _hand_on(
        self, request: web.BaseRequest, route: Route, errand: Errand, upgrade: bool
    ) -> web.StreamResponse:
        if upgrade:
            return await sockets.forward(request, errand, self._clients, self._sockets)
        try:
            return await forwarding.forward(request, errand, self._clients)
        except NotYet as refused:
            if route.path != routes.MCP or route.kind != "tools":
                raise
            return pages.rpc_problem(refused, await _rpc_id(request))

    def _health(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise MethodRefused("GET", "HEAD")
        here = sorted({"ttyd", *self._directory.services})
        return pages.document({"healthy": True, "services": here, "opencode": self._directory.opencode is not None})


def _peer(request: web.BaseRequest) -> str | None:
    """Address of who is connected; none for whoever comes by the unix socket."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return peer[0] if isinstance(peer, tuple) else None


def _is_upgrade(request: web.BaseRequest) -> bool:
    return request.headers.get("Upgrade", "").strip().lower() == "websocket"


def _is_preflight(request: web.BaseRequest) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def _is_page(request: web.BaseRequest) -> bool:
    """Whether a person's browser shows the answer as a page of its own."""
    if request.headers.get("Sec-Fetch-Dest") is not None:
        return request.headers["Sec-Fetch-Dest"] in ("document", "iframe", "frame")
    return "text/html" in request.headers.get("Accept", "") and not _is_upgrade(request)


async def _rpc_id(request: web.BaseRequest) -> str | int | None:
    """The id of the JSON-RPC request that was to be passed on, as far as it can be read."""
    try:
        async with asyncio.timeout(limits.RPC_ID_WAIT):
            return msgspec.json.decode(await request.content.read(limits.RPC_BYTES), type=_Rpc).id
    except (TimeoutError, msgspec.MsgspecError, RuntimeError):
        return None


def _area(request: web.BaseRequest) -> str:
    """For a log: the first segment of the path. What is behind it may hold anything, a misplaced token too."""
    return request.raw_path.partition("?")[0].removeprefix("/").partition("/")[0][:32]
