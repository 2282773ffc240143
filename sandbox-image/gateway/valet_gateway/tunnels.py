"""Which tunnels there may be. Pure."""

import re
from collections.abc import Iterable, Mapping

from valet_protocol.errors import TooMany, Unprocessable
from valet_protocol.events.machine import Tunnel

from valet_gateway import limits
from valet_gateway.routes import TUNNEL_NAME

Tunnels = tuple[Tunnel, ...]
"""Sorted by name."""


def register(tunnels: Tunnels, tunnel: Tunnel, reserved: Mapping[int, str]) -> Tunnels:
    """With this tunnel, in place of one of the same name. `reserved`: ports and whose they are.

    Raises `Unprocessable` for a name or a port that cannot be, `TooMany`.
    """
    if not re.fullmatch(TUNNEL_NAME, tunnel.name) or len(tunnel.name) > limits.TUNNEL_NAME_CHARS:
        raise Unprocessable(
            "tunnel_name",
            f"A tunnel's name has 1 to {limits.TUNNEL_NAME_CHARS} letters, digits, '.', '_' and '-', the first a letter"
            " or digit.",
        )
    if not 1 <= tunnel.port <= 65_535:
        raise Unprocessable("tunnel_port", f"{tunnel.port} is no TCP port: choose one from 1 to 65535.")
    check_port(tunnel.port, reserved)
    if len(tunnel.description) > limits.TUNNEL_DESCRIPTION_CHARS:
        raise Unprocessable(
            "tunnel_description", f"The description is longer than {limits.TUNNEL_DESCRIPTION_CHARS} characters."
        )
    others = [other for other in tunnels if other.name != tunnel.name]
    if len(others) >= limits.TUNNELS:
        raise TooMany("tunnels", f"There are {limits.TUNNELS} tunnels already; remove one first.")
    return tuple(sorted([*others, tunnel], key=lambda each: each.name))


def check_port(port: int, reserved: Mapping[int, str]) -> None:
    """Raises `Unprocessable` for a port behind which is something with rules of its own."""
    if port in reserved:
        raise Unprocessable(
            "tunnel_port", f"Port {port} is {reserved[port]}, which no tunnel may lead to. Serve on another port."
        )


def remove(tunnels: Tunnels, name: str) -> Tunnels:
    """Without the tunnel of this name."""
    return tuple(tunnel for tunnel in tunnels if tunnel.name != name)


def find(tunnels: Iterable[Tunnel], name: str) -> Tunnel | None:
    """The tunnel of this name."""
    return next((tunnel for tunnel in tunnels if tunnel.name == name), None)
