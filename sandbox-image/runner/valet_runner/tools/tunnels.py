"""The tools over tunnels, on the gateway's control socket."""

import asyncio
import contextlib
from urllib.parse import quote

import aiohttp
import msgspec
from valet_protocol.errors import NotFound, Problem, Refused, Unavailable, from_problem
from valet_protocol.events.machine import Tunnel, TunnelsChanged
from valet_protocol.tools.tunnels import (
    CheckTunnel,
    DeleteTunnel,
    ListTunnels,
    RegisterTunnel,
    TunnelDeleted,
    TunnelList,
    TunnelRegistered,
    TunnelView,
)

from valet_runner.tools import limits
from valet_runner.tools.running import Answer
from valet_runner.tools.saying import Say, store


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    tunnels: list[Tunnel]


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    protocol: str
    description: str
    keep_prefix: bool


class Gateway:
    """The gateway's tunnels. Every call waits for a gateway that restarts, and raises `Unavailable` in the end."""

    def __init__(self, control_socket: str) -> None:
        self._socket = control_socket

    async def tunnels(self) -> list[Tunnel]:
        """All there are."""
        return (await self._ask("GET", "/tunnels")).tunnels

    async def put(self, name: str, wanted: _Wanted) -> list[Tunnel]:
        """Register one, or change it; gives all. Raises the gateway's refusal of a port."""
        return (await self._ask("PUT", f"/tunnels/{quote(name)}", msgspec.json.encode(wanted))).tunnels

    async def delete(self, name: str) -> bool:
        """Remove one; whether it was there."""
        try:
            await self._ask("DELETE", f"/tunnels/{quote(name)}")
        except NotFound:
            return False
        return True

    async def _ask(self, verb: str, path: str, body: bytes | None = None) -> _Listing:
        until = asyncio.get_running_loop().time() + limits.GATEWAY_TIMEOUT
        while True:
            try:
                status, content = await self._try(verb, path, body)
                break
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if asyncio.get_running_loop().time() >= until:
                    raise Unavailable("unavailable", "This sandbox's gateway does not run; try again.") from error
                await asyncio.sleep(limits.GATEWAY_RETRY_WAIT)
        if status >= 400:
            raise _refusal(status, content)
        return msgspec.json.decode(content, type=_Listing) if verb != "DELETE" else _Listing(tunnels=[])

    async def _try(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=limits.GATEWAY_TIMEOUT)
        # one connection for each call: they are seldom, and the gateway may have restarted since the last one
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._socket), timeout=timeout) as http,
            http.request(
                verb, f"http://gateway{path}", data=body, headers={"content-type": "application/json"}
            ) as response,
        ):
            return response.status, await response.read()


class Tunnels:
    """Answers the tools."""

    def __init__(self, gateway: Gateway, say: Say) -> None:
        self._gateway = gateway
        self._say = say

    async def list(self, _: ListTunnels) -> Answer:
        """All."""
        return Answer(reply=TunnelList(tunnels=[_view(tunnel) for tunnel in await self._gateway.tunnels()]))

    async def register(self, request: RegisterTunnel) -> Answer:
        """One more, or another port for one."""
        wanted = _Wanted(
            port=request.port,
            protocol=request.protocol,
            description=request.description or "",
            keep_prefix=request.keep_prefix,
        )
        tunnels = await self._gateway.put(request.tunnel_name, wanted)
        await store(self._say, TunnelsChanged(tunnels=tunnels))
        return await self._registered(request.tunnel_name, tunnels)

    async def check(self, request: CheckTunnel) -> Answer:
        """One, and whether its port is served."""
        return await self._registered(request.tunnel_name, await self._gateway.tunnels())

    async def delete(self, request: DeleteTunnel) -> Answer:
        """One less. Said again where it was gone: the time before may have ended before it was said."""
        deleted = await self._gateway.delete(request.tunnel_name)
        await store(self._say, TunnelsChanged(tunnels=await self._gateway.tunnels()))
        return Answer(reply=TunnelDeleted(name=request.tunnel_name, deleted=deleted))

    async def _registered(self, name: str, tunnels: "list[Tunnel]") -> Answer:
        for tunnel in tunnels:
            if tunnel.name == name:
                return Answer(reply=TunnelRegistered(tunnel=_view(tunnel), listening=await _listens(tunnel.port)))
        raise NotFound("tunnel_not_found", f"There is no tunnel {name!r}; register_tunnel makes one.")


def _view(tunnel: Tunnel) -> TunnelView:
    return TunnelView(
        name=tunnel.name,
        port=tunnel.port,
        protocol=tunnel.protocol,
        description=tunnel.description,
        keep_prefix=tunnel.keep_prefix,
        path=f"/t/{tunnel.name}/",
    )


async def _listens(port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(limits.LISTEN_TIMEOUT):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
    return False


def _refusal(status: int, content: bytes) -> Refused:
    try:
        return from_problem(msgspec.json.decode(content, type=Problem))
    except msgspec.MsgspecError:
        return Unavailable("unavailable", f"This sandbox's gateway answered {status}; try again.")
