"""Tunnels: ports of the sandbox that people can open in a browser. Answered in the sandbox itself."""

from typing import Literal

import msgspec

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import WRITE, Tool


class TunnelView(Reply, frozen=True, kw_only=True):
    """A port that people reach."""

    name: str
    port: int
    protocol: Literal["http", "ws"] = "http"
    description: str = ""
    keep_prefix: bool = False
    """Whether the server is asked for `/t/<name>/…` as it stands."""
    path: str
    """Where it is below the address of this sandbox's gateway: `/t/<name>/`. People find the whole link in the
    session's page; where it can be had, it is an address of the tunnel's own, with the server's `/` at its root."""


class TunnelList(Reply, frozen=True, kw_only=True):
    """All tunnels of this sandbox."""

    tunnels: list[TunnelView]


class ListTunnels(Tool, frozen=True, kw_only=True):
    """List the tunnels of this sandbox: which of its ports people can open in a browser."""

    name = method = "list_tunnels"
    category = "tunnels"
    route = "GET /api/tunnels"
    reply = TunnelList
    served_by = "runner"


class TunnelRegistered(Reply, frozen=True, kw_only=True):
    """People can reach the port."""

    tunnel: TunnelView
    listening: bool
    """Whether something listens on the port yet; if not, start it."""


class RegisterTunnel(Tool, frozen=True, kw_only=True):
    """Let people open a port of this sandbox in their browser, e.g. a development server you have started.

    The server must listen on 127.0.0.1 or on all addresses. The same name again changes the port. Only people who may
    write to this session reach it.
    """

    name = method = "register_tunnel"
    category = "tunnels"
    route = "POST /api/tunnels"
    reply = TunnelRegistered
    timeout = WRITE
    served_by = "runner"

    tunnel_name: limits.TunnelName = msgspec.field(name="name")
    """Letters, digits, `.`, `_` and `-`; part of the link, e.g. `preview`."""
    port: limits.Port
    """The port of this sandbox."""
    protocol: Literal["http", "ws"] = "http"
    """`ws` for a server that speaks nothing but WebSocket; `http` carries WebSockets too."""
    description: limits.Name | None = None
    """What people find there."""
    keep_prefix: bool = False
    """For a server that was told to serve below `/t/<name>/` (Vite: `--base /t/<name>/`): it is then asked for that
    path as it stands. Any other server is asked for `/`, also where people open it below `/t/<name>/`."""


class CheckTunnel(Tool, frozen=True, kw_only=True):
    """Look whether something listens on a tunnel's port, before you tell people to open it."""

    name = method = "check_tunnel"
    category = "tunnels"
    route = "GET /api/tunnels/{name}"
    reply = TunnelRegistered
    served_by = "runner"

    tunnel_name: limits.TunnelName = msgspec.field(name="name")
    """The tunnel's name."""


class TunnelDeleted(Reply, frozen=True, kw_only=True):
    """People no longer reach the port. What listens on it runs on."""

    name: str
    deleted: bool
    """False where there was no such tunnel."""


class DeleteTunnel(Tool, frozen=True, kw_only=True):
    """Remove a tunnel. What listens on its port runs on."""

    name = method = "delete_tunnel"
    category = "tunnels"
    route = "DELETE /api/tunnels/{name}"
    reply = TunnelDeleted
    timeout = WRITE
    served_by = "runner"

    tunnel_name: limits.TunnelName = msgspec.field(name="name")
    """The tunnel's name."""
