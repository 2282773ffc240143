"""The control socket: what the runner tells the gateway, and nobody else: the agent is of the same user."""

import os
import socket
import struct
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from valet_protocol.errors import BadRequest, Forbidden, NotFound, Refused, TooLarge, Unprocessable
from valet_protocol.events.machine import Tunnel
from valet_service import logs

from valet_gateway import limits, pages, targets, tunnels
from valet_gateway.admission import Access
from valet_gateway.directory import Directory, Opencode
from valet_gateway.errors import BadTarget
from valet_gateway.routes import PROXIED
from valet_gateway.targets import Target
from valet_gateway.tunnel_addresses import TunnelAddresses
from valet_gateway.tunnel_file import TunnelFile
from valet_gateway.visits import Visits

T = TypeVar("T")

log = logs.get(__name__)


class AccessBody(msgspec.Struct, frozen=True, kw_only=True):
    """`PUT /access`: see `Access`."""

    seq: int
    since: dict[str, int]


class OpencodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """`PUT /opencode`."""

    url: str
    authorization: str = ""


class ServiceBody(msgspec.Struct, frozen=True, kw_only=True):
    """`PUT /services/{name}`."""

    target: str


class TunnelBody(msgspec.Struct, frozen=True, kw_only=True):
    """`PUT /tunnels/{name}`: a tunnel without its name."""

    port: int
    protocol: str = "http"
    description: str = ""
    keep_prefix: bool = False


class Control:
    """Changes the directory. Everything may be said twice."""

    def __init__(self, directory: Directory, file: TunnelFile, visits: Visits, addresses: TunnelAddresses) -> None:
        self._directory = directory
        self._file = file
        self._visits = visits
        self._addresses = addresses

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=limits.CONTROL_BYTES, middlewares=[_refusals, _from_the_runner()])
        app.router.add_put("/access", self._set_access)
        app.router.add_put("/opencode", self._set_opencode)
        app.router.add_delete("/opencode", self._forget_opencode)
        app.router.add_put("/services/{name}", self._set_service)
        app.router.add_delete("/services/{name}", self._forget_service)
        app.router.add_get("/tunnels", self._list_tunnels)
        app.router.add_put("/tunnels/{name}", self._set_tunnel)
        app.router.add_delete("/tunnels/{name}", self._remove_tunnel)
        return app

    async def _set_access(self, request: web.Request) -> web.Response:
        body = await _body(request, AccessBody)
        await self._visits.judge(Access(seq=body.seq, since=body.since))
        return pages.document({})

    async def _set_opencode(self, request: web.Request) -> web.Response:
        body = await _body(request, OpencodeBody)
        self._directory.opencode = Opencode(target=_target(body.url), authorization=body.authorization)
        return pages.document({})

    async def _forget_opencode(self, _: web.Request) -> web.Response:
        self._directory.opencode = None
        return pages.document({})

    async def _set_service(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in PROXIED:
            raise NotFound("no_service", f"Services are {', '.join(PROXIED)}; anything else is a tunnel.")
        self._directory.services[name] = _target((await _body(request, ServiceBody)).target)
        return pages.document({})

    async def _forget_service(self, request: web.Request) -> web.Response:
        self._directory.services.pop(request.match_info["name"], None)
        return pages.document({})

    async def _list_tunnels(self, _: web.Request) -> web.Response:
        return self._tunnels()

    async def _set_tunnel(self, request: web.Request) -> web.Response:
        body = await _body(request, TunnelBody)
        if body.protocol not in ("http", "ws"):
            raise Unprocessable("tunnel_protocol", "A tunnel's protocol is http or ws.")
        tunnel = Tunnel(
            name=request.match_info["name"],
            port=body.port,
            protocol=body.protocol,
            description=body.description,
            keep_prefix=body.keep_prefix,
        )
        await self._keep(self._directory.register(tunnel))
        return self._tunnels()

    async def _remove_tunnel(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if tunnels.find(self._directory.tunnels, name) is None:
            raise NotFound("no_tunnel", f"No tunnel is called {name!r}.")
        await self._keep(tunnels.remove(self._directory.tunnels, name))
        return self._tunnels()

    async def _keep(self, changed: tunnels.Tunnels) -> None:
        if changed != self._directory.tunnels:
            self._file.save(changed)
            self._directory.tunnels = changed
        await self._addresses.settle(tunnel.name for tunnel in self._directory.tunnels)

    def _tunnels(self) -> web.Response:
        return pages.document({"tunnels": self._directory.tunnels})


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        return pages.problem(refused)
    except web.HTTPRequestEntityTooLarge:
        return pages.problem(TooLarge("too_large", f"A document here has at most {limits.CONTROL_BYTES} bytes."))
    except web.HTTPException as error:
        return pages.bare(
            error.status, "The control socket has /access, /opencode, /services/{name}, /tunnels[/{name}]."
        )


def _from_the_runner() -> Middleware:
    """Whoever is not the process that started this one is refused, where the system says who asks (Linux)."""
    runner = os.getppid()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        asking = request.transport.get_extra_info("socket") if request.transport else None
        if hasattr(socket, "SO_PEERCRED"):
            pid = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] if asking else 0
            if pid != runner:
                log.warning("control_refused", pid=pid)
                raise Forbidden("not_the_runner", "Only the runner that started the gateway says what it is to do.")
        return await handler(request)

    return check


async def _body(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise BadRequest("bad_document", f"The document cannot be used: {error}") from None


def _target(text: str) -> Target:
    try:
        return targets.parse(text)
    except BadTarget as error:
        raise Unprocessable("target", str(error)) from None
