"""Connecting to the outside on behalf of a sandbox."""

import asyncio
import socket
from urllib.parse import urlsplit

import msgspec

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import policy
from valet_sandbox_controller.portal.heads import Authority
from valet_sandbox_controller.portal.policy import NetworkPolicy
from valet_sandbox_controller.portal.splice import Held, as_transport

BROKER = Authority("nats.valet", 4222)
"""The name by which sandboxes know the broker."""


class Dialled(msgspec.Struct, frozen=True):
    """An open connection, and what came from it so far."""

    transport: asyncio.Transport
    held: Held


class Dialler:
    """Opens connections within the network policy. `broker` is the NATS server's URL."""

    def __init__(self, network: NetworkPolicy, broker: str) -> None:
        self._network = network
        parts = urlsplit(broker.split(",")[0] if "//" in broker else f"nats://{broker}")
        self._broker = Authority(parts.hostname or "127.0.0.1", parts.port or 4222)

    async def dial(self, where: Authority) -> Dialled:
        """Connect. Raises `BadPortalRequest` (403, 502, 504)."""
        if where == BROKER:
            return await self._connect(self._broker.host, self._broker.port, "the platform's broker")
        addresses = await self._addresses(where)
        problem: BadPortalRequest | None = None
        for address in addresses:
            try:
                return await self._connect(address, where.port, f"{where.host}:{where.port}")
            except BadPortalRequest as error:
                problem = error
        assert problem
        raise problem

    async def _addresses(self, where: Authority) -> tuple[str, ...]:
        refused = policy.allowed_name(self._network, where.host)
        if refused is not None:
            raise BadPortalRequest(403, refused.reason)
        try:
            found = await asyncio.wait_for(
                asyncio.get_running_loop().getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM),
                limits.DIAL_TIMEOUT,
            )
        except TimeoutError:
            raise BadPortalRequest(504, f"looking up {where.host} took too long") from None
        except (OSError, UnicodeError) as error:
            raise BadPortalRequest(502, f"{where.host} cannot be looked up: {error}") from None
        resolved = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        decision = policy.allowed(self._network, where.host, resolved)
        if not decision.addresses:
            raise BadPortalRequest(403, decision.reason)
        return decision.addresses

    async def _connect(self, host: str, port: int, name: str) -> Dialled:
        loop = asyncio.get_running_loop()
        try:
            transport, held = await asyncio.wait_for(loop.create_connection(Held, host, port), limits.DIAL_TIMEOUT)
        except TimeoutError:
            raise BadPortalRequest(504, f"{name} does not answer") from None
        except OSError as error:
            raise BadPortalRequest(502, f"{name} cannot be reached: {error.strerror or error}") from None
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Dialled(as_transport(transport), held)
