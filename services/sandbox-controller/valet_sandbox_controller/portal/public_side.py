"""The public side of sandboxes: a TCP port for each session that asked for one, joined with its sandbox's gateway, and
one for each of its tunnels, so that what the agent shows is at the root of an origin of its own.

A port is there as long as the sandbox, or the tunnel, is. Who may do what is the gateway's to decide: here bytes pass.
"""

import asyncio
import socket
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from valet_protocol.errors import Conflict, NotFound
from valet_protocol.ids import is_ulid
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_service import logs

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import GatewayAway
from valet_sandbox_controller.portal import away_page, gateway_dial, port_choice
from valet_sandbox_controller.portal.dial import Dialled
from valet_sandbox_controller.portal.known_ports import KnownPorts
from valet_sandbox_controller.portal.opening import Opening
from valet_sandbox_controller.portal.opening import of as opening_of
from valet_sandbox_controller.portal.port_choice import InUse
from valet_sandbox_controller.portal.public_address import Address
from valet_sandbox_controller.portal.splice import as_transport, join

_log = logs.get(__name__)


class PublicSide:
    """Opens ports on demand, opens them again after restarts, closes them when their sandbox is gone."""

    def __init__(self, gateways: Path, ports: KnownPorts, address: Address) -> None:
        self._gateways = gateways
        self._ports = ports
        self._address = address
        self._open: dict[str, _Port] = {}
        self._lock = asyncio.Lock()

    async def endpoint(self, request: GetEndpoint) -> Endpoint:
        """Where a session's gateway is, or one of its tunnels. Raises `Conflict` (`sandbox_not_running`,
        `sandbox_ports_in_use`) and, for a tunnel, `NotFound` (`no_tunnel_address`)."""
        opening = Opening(request.session_id, request.tunnel)
        folder = self._gateways / opening.session_id
        if not is_ulid(opening.session_id) or not folder.is_dir():
            raise _not_running("It has none at the moment; the next prompt starts one.")
        if opening.tunnel is not None and not self._may_have_a_port(opening):
            raise NotFound("no_tunnel_address", "The tunnel has no address of its own; use /t/<name>/ of the gateway.")
        try:
            (await gateway_dial.dial(folder, opening.socket)).transport.abort()
        except GatewayAway as error:
            _log.info("gateway_away", session=opening.key, reason=str(error))
            raise _not_running("It is starting, or its gateway is; try again in some seconds.") from error
        async with self._lock:
            port = await self._ensure(opening)
            if port is None and opening.tunnel is None:
                port = await self._instead_of_another(opening)
        if port is None:
            raise _all_in_use(self._address.ports)
        return Endpoint(url=self._address.url(port))

    async def keep(self) -> None:
        """Open what was open before, close what has no sandbox any more; without end."""
        while True:
            looked_at = tuple(self._open)  # what is opened during the look is newer than what it sees
            there = await asyncio.to_thread(_there, self._gateways, {*looked_at, *self._ports.known()})
            async with self._lock:
                for key in [each for each in looked_at if each not in there]:
                    if key in self._open:  # it may have been given away meanwhile
                        _log.info("public_side_closed", session=key, port=self._open[key].number)
                        self._open.pop(key).close()
                for key in self._ports.known():
                    if key in there and key not in self._open:
                        await self._open_again(opening_of(key))
            await asyncio.sleep(limits.GATEWAY_LOOK)

    def close(self) -> None:
        """Close every port and what is open on it."""
        for port in self._open.values():
            port.close()
        self._open.clear()

    def _may_have_a_port(self, opening: Opening) -> bool:
        """Whether the tunnel is there, and its session has not too many of them."""
        if not opening.possible or not _is_there(self._gateways, opening.key):
            return False
        others = [each for each in self._open if each.startswith(f"{opening.session_id}/")]
        return opening.key in self._open or len(others) < limits.TUNNEL_PORTS

    async def _ensure(self, opening: Opening) -> int | None:
        """Its port, opened if need be; none where every one is another's."""
        port = self._open.get(opening.key)
        if port is not None:
            port.used = time.monotonic()
            self._ports.keep(opening.key, port.number)
            return port.number
        wanted = self._ports.of(opening.key)
        taken = {each.number for each in self._open.values()}
        for number in port_choice.to_try(self._address.ports, wanted, taken, self._ports.all()):
            if await self._opened(opening, number):
                return self._open[opening.key].number
        return None

    async def _open_again(self, opening: Opening) -> None:
        """The port that it had; where that is somebody else's by now its link is dead, and who asks gets another."""
        wanted = self._ports.of(opening.key)
        allowed = self._address.ports is None or wanted in self._address.ports
        if not allowed or not await self._opened(opening, wanted):
            self._ports.forget(opening.key)

    async def _instead_of_another(self, opening: Opening) -> int | None:
        """The port that was unused for longest, if nobody is connected to it; a tunnel's before a gateway's.

        Who still has its old link gets a 401 there: tokens and cookies are for one session, and the gateway that now
        answers is another one's.
        """
        while True:
            victim = port_choice.gives_way(
                InUse(
                    key=key,
                    tunnel=each.opening.tunnel is not None,
                    used=each.used,
                    connections=len(each.connections),
                )
                for key, each in self._open.items()
            )
            if victim is None or self._address.ports is None:
                return None
            port = self._open.pop(victim)
            port.close()
            _log.info("port_given_away", port=port.number, session=victim, to=opening.key)
            if await self._opened(opening, port.number):
                return port.number

    async def _opened(self, opening: Opening, number: int) -> bool:
        port = _Port(opening, self._gateways / opening.session_id)
        try:
            await port.listen(self._address.host, number)
        except OSError as error:
            _log.info("port_taken", session=opening.key, port=number, reason=error.strerror)
            return False
        self._open[opening.key] = port
        _log.info("public_side_open", session=opening.key, port=port.number)
        self._ports.keep(opening.key, port.number)
        return True


def _there(gateways: Path, keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key for key in keys if _is_there(gateways, key))


def _is_there(gateways: Path, key: str) -> bool:
    """Whether what a port leads to is there: a sandbox, or a tunnel in one. A gateway that restarts leaves its
    sockets where they are."""
    opening = opening_of(key)
    folder = gateways / opening.session_id
    try:
        return folder.is_dir() if opening.tunnel is None else stat.S_ISSOCK((folder / opening.socket).lstat().st_mode)
    except OSError:
        return False


class _Port:
    """The listener of a session, or of a tunnel of it, and its connections."""

    def __init__(self, opening: Opening, folder: Path) -> None:
        self.opening = opening
        self.folder = folder
        self.held = 0
        """Connections that wait for the gateway."""
        self.number = 0
        self.used = time.monotonic()
        """When somebody asked for it or was connected."""
        self.connections: set[_Visitor] = set()
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            self.number = listener.getsockname()[1]
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: _Visitor(self), sock=listener, backlog=limits.GATEWAY_BACKLOG
            )
        except OSError:
            listener.close()
            raise

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for visitor in tuple(self.connections):
            visitor.cut()


class _Visitor(asyncio.Protocol):
    """A connection from outside, until it is joined with the gateway."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._gateway: asyncio.Transport | None = None
        self._early = b""
        self._ended = False
        self._turned_away = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_transport(transport)
        if len(self._port.connections) >= limits.GATEWAY_CONNECTIONS:
            _log.warning("too_many_connections", session=self._port.opening.key, limit=limits.GATEWAY_CONNECTIONS)
            self._transport.abort()
            return
        self._port.connections.add(self)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._task = asyncio.create_task(self._join(self._transport))

    def data_received(self, data: bytes) -> None:
        assert self._transport
        if self._turned_away:
            return
        self._early += data
        self._transport.pause_reading()  # until there is somewhere for the bytes to go

    def eof_received(self) -> bool:
        self._ended = True
        return not self._turned_away  # it may have said all it wants to say

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        self._end()

    def cut(self) -> None:
        """End it at once, on both sides."""
        for transport in (self._transport, self._gateway):
            if transport is not None:
                transport.abort()

    async def _join(self, transport: asyncio.Transport) -> None:
        try:
            dialled = await self._reach()
        except GatewayAway as error:
            _log.info("gateway_away", session=self._port.opening.key, reason=str(error))
            self._turn_away(transport)
            return
        if transport.is_closing():
            dialled.transport.abort()
            return
        self._gateway = dialled.transport
        if self._early:
            dialled.transport.write(self._early)
        join(transport, dialled.transport, dialled.held, limits.SPLICE_HIGH_WATER, self._end)
        if self._ended:
            cast(asyncio.Protocol, transport.get_protocol()).eof_received()
        else:
            transport.resume_reading()

    async def _reach(self) -> Dialled:
        """Connect to the gateway; one that restarts is waited for. Raises `GatewayAway`."""
        port = self._port
        try:
            return await gateway_dial.dial(port.folder, port.opening.socket)
        except GatewayAway:
            if port.held >= limits.HELD:
                raise
        port.held += 1
        until = time.monotonic() + limits.GATEWAY_HOLD
        try:
            while True:
                await asyncio.sleep(limits.GATEWAY_HOLD_POLL)
                try:
                    return await gateway_dial.dial(port.folder, port.opening.socket)
                except GatewayAway:
                    if time.monotonic() >= until:
                        raise
        finally:
            port.held -= 1

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Say that it starts, if that is understood."""
        words = away_page.answer(self._early)
        if words is None or transport.is_closing():
            transport.abort()
            return
        transport.write(words)
        if self._ended:
            transport.close()
            return
        # what is left of the request is read and dropped: a connection closed before is reset, and the answer lost
        self._turned_away = True
        transport.write_eof()
        transport.resume_reading()
        asyncio.get_running_loop().call_later(limits.LINGER, transport.abort)

    def _end(self) -> None:
        self._port.connections.discard(self)
        self._port.used = time.monotonic()


def _not_running(words: str) -> Conflict:
    return Conflict("sandbox_not_running", f"The session's sandbox is not running. {words}")


def _all_in_use(ports: range | None) -> Conflict:
    which = "No port" if ports is None else f"None of the ports {ports[0]}-{ports[-1]}"
    return Conflict(
        "sandbox_ports_in_use",
        f"{which} for sandboxes is free: each is in use. Close an editor, a terminal or a desktop of another session,"
        " or let [sandbox] public_ports in valet.toml (under Compose: VALET_SANDBOX_PORTS) name more of them.",
    )
