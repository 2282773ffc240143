"""The public side of sandboxes: a TCP port for each session that asked for one, joined with its sandbox's gateway.

The port is there as long as the sandbox is. Who may do what is the gateway's to decide: here bytes pass.
"""

import asyncio
import socket
import time
from pathlib import Path
from typing import cast

from valet_protocol.errors import Conflict
from valet_protocol.ids import is_ulid
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_service import logs

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import GatewayAway
from valet_sandbox_controller.portal import gateway_dial, port_choice
from valet_sandbox_controller.portal.known_ports import KnownPorts
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
        """Where a session's gateway is. Raises `Conflict` (`sandbox_not_running`, `sandbox_ports_in_use`)."""
        session_id = request.session_id
        folder = self._gateways / session_id
        if not is_ulid(session_id) or not folder.is_dir():
            raise _not_running("It has none at the moment; the next prompt starts one.")
        try:
            (await gateway_dial.dial(folder)).transport.abort()
        except GatewayAway as error:
            _log.info("gateway_away", session=session_id, reason=str(error))
            raise _not_running("It is starting, or its gateway is; try again in some seconds.") from error
        async with self._lock:
            port = await self._ensure(session_id) or await self._instead_of_another(session_id)
        if port is None:
            raise _all_in_use(self._address.ports)
        return Endpoint(url=self._address.url(port))

    async def keep(self) -> None:
        """Open what was open before, close what has no sandbox any more; without end."""
        while True:
            looked_at = tuple(self._open)  # what is opened during the look is newer than what it sees
            running = await asyncio.to_thread(_folders, self._gateways)
            async with self._lock:
                for session_id in [each for each in looked_at if each not in running]:
                    _log.info("public_side_closed", session=session_id, port=self._open[session_id].number)
                    self._open.pop(session_id).close()
                for session_id in self._ports.sessions():
                    if session_id in running and session_id not in self._open:
                        await self._open_again(session_id)
            await asyncio.sleep(limits.GATEWAY_LOOK)

    def close(self) -> None:
        """Close every port and what is open on it."""
        for port in self._open.values():
            port.close()
        self._open.clear()

    async def _ensure(self, session_id: str) -> int | None:
        """The session's port, opened if need be; none where every one is another's."""
        port = self._open.get(session_id)
        if port is not None:
            port.used = time.monotonic()
            self._ports.keep(session_id, port.number)
            return port.number
        wanted = self._ports.of(session_id)
        taken = {each.number for each in self._open.values()}
        for number in port_choice.to_try(self._address.ports, wanted, taken, self._ports.all()):
            if await self._opened(session_id, number):
                return self._open[session_id].number
        return None

    async def _open_again(self, session_id: str) -> None:
        """The port that a session had; where that is somebody else's by now its link is dead, and who asks gets
        another."""
        wanted = self._ports.of(session_id)
        allowed = self._address.ports is None or wanted in self._address.ports
        if not allowed or not await self._opened(session_id, wanted):
            self._ports.forget(session_id)

    async def _instead_of_another(self, session_id: str) -> int | None:
        """The port that was unused for longest, if nobody is connected to it.

        Who still has its old link gets a 401 there: tokens and cookies are for one session, and the gateway that now
        answers is another one's.
        """
        while True:
            victim = port_choice.gives_way(
                InUse(session_id=each.session_id, used=each.used, connections=len(each.connections))
                for each in self._open.values()
            )
            if victim is None or self._address.ports is None:
                return None
            port = self._open.pop(victim)
            port.close()
            _log.info("port_given_away", port=port.number, session=victim, to=session_id)
            if await self._opened(session_id, port.number):
                return port.number

    async def _opened(self, session_id: str, number: int) -> bool:
        port = _Port(session_id, self._gateways / session_id)
        try:
            await port.listen(self._address.host, number)
        except OSError as error:
            _log.info("port_taken", session=session_id, port=number, reason=error.strerror)
            return False
        self._open[session_id] = port
        _log.info("public_side_open", session=session_id, port=port.number)
        self._ports.keep(session_id, port.number)
        return True


class _Port:
    """One session's listener and its connections."""

    def __init__(self, session_id: str, folder: Path) -> None:
        self.session_id = session_id
        self.folder = folder
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
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = as_transport(transport)
        if len(self._port.connections) >= limits.GATEWAY_CONNECTIONS:
            _log.warning("too_many_connections", session=self._port.session_id, limit=limits.GATEWAY_CONNECTIONS)
            self._transport.abort()
            return
        self._port.connections.add(self)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._task = asyncio.create_task(self._join(self._transport))

    def data_received(self, data: bytes) -> None:
        assert self._transport
        self._early += data
        self._transport.pause_reading()  # until there is somewhere for the bytes to go

    def eof_received(self) -> bool:
        self._ended = True
        return True  # it may have said all it wants to say

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
            dialled = await gateway_dial.dial(self._port.folder)
        except GatewayAway as error:
            _log.info("gateway_away", session=self._port.session_id, reason=str(error))
            transport.abort()
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

    def _end(self) -> None:
        self._port.connections.discard(self)
        self._port.used = time.monotonic()


def _folders(path: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return frozenset()


def _not_running(words: str) -> Conflict:
    return Conflict("sandbox_not_running", f"The session's sandbox is not running. {words}")


def _all_in_use(ports: range | None) -> Conflict:
    which = "No port" if ports is None else f"None of the ports {ports[0]}-{ports[-1]}"
    return Conflict(
        "sandbox_ports_in_use",
        f"{which} for sandboxes is free: each is in use. Close an editor, a terminal or a desktop of another session,"
        " or let [sandbox] public_ports in valet.toml (under Compose: VALET_SANDBOX_PORTS) name more of them.",
    )
