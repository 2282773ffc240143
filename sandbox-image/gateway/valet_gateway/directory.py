"""What is behind the gateway at the moment: which program serves which route."""

import msgspec
from valet_protocol.errors import NotFound, Unavailable
from valet_protocol.events.machine import Tunnel
from valet_protocol.sandbox_spec import GatewaySpec

from valet_gateway import targets, tunnels
from valet_gateway.routes import Route
from valet_gateway.targets import Target
from valet_gateway.tunnels import Tunnels

_TITLES = {"vscode": "VS Code", "vnc": "the desktop (VNC)", "ttyd": "the terminal"}

_HOW = {
    "vscode": "It is there where code-server is installed.",
    "vnc": "It is there where Xvfb, fluxbox, x11vnc, websockify and noVNC are installed (Debian: xvfb fluxbox x11vnc"
    ' websockify novnc), unless the configuration says [sandbox] desktop = "off".',
}
_WHERE = (
    "Whoever runs Valet installs it in /usr of the machine, or in the sandbox's image; sandboxes that start after"
    " that have it. The session's boot steps say what exactly is missing."
)


class Opencode(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's server."""

    target: Target
    authorization: str
    """Value of the header it wants."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """The program behind a route."""

    target: Target
    title: str
    """What people call it."""
    advice: str
    """What to do when it does not answer."""
    authorization: str | None = None
    has_door: bool = False
    """Whether the runner starts it when somebody comes, and says until then how that goes."""
    comes_back: str = ""
    """What is said while it cannot be reached, of a part of the sandbox that is then started again."""
    keeps_prefix: bool = False
    """Whether it is asked for its path with the prefix."""


class Directory:
    """Changed by the runner through the control socket."""

    def __init__(self, spec: GatewaySpec, kept: Tunnels = ()) -> None:
        """Raises `BadTarget` for a service that is not of this sandbox."""
        self._gateway_port = spec.port
        self._processes = Target(path=spec.processes_socket)
        self._tools = Target(path=spec.tools_socket)
        self.services = {name: targets.parse(target) for name, target in spec.services.items()}
        self.opencode: Opencode | None = None
        self.tunnels: Tunnels = kept

    @property
    def processes(self) -> Backend:
        """The process service."""
        return Backend(
            target=self._processes,
            title="the process service",
            advice="It is restarted when it ends; try again in a few seconds.",
        )

    def reserved(self) -> dict[int, str]:
        """Ports no tunnel may lead to, and whose they are."""
        found = {
            target.port: f"{_TITLES.get(name, name)}, reached at /{name}/"
            for name, target in self.services.items()
            if target.port
        }
        if self.opencode and self.opencode.target.port:
            found[self.opencode.target.port] = "the agent's own server"
        if self._gateway_port:
            found[self._gateway_port] = "this gateway itself"
        return found

    def register(self, tunnel: Tunnel) -> Tunnels:
        """All tunnels with this one; nothing is changed yet. Raises `Unprocessable`, `TooMany`."""
        return tunnels.register(self.tunnels, tunnel, self.reserved())

    def keeps_prefix(self, name: str) -> bool:
        """Whether there is a tunnel of this name that is asked with its prefix."""
        tunnel = tunnels.find(self.tunnels, name)
        return tunnel is not None and tunnel.keep_prefix

    def find(self, route: Route) -> Backend:
        """The program for a route. Raises `NotFound`, `Unavailable`, `Unprocessable`."""
        match route.kind:
            case "service":
                return self._service(route.name)
            case "tunnel":
                return self._tunnel(route.name)
            case "processes":
                return self.processes
            case "tools":
                return Backend(
                    target=self._tools,
                    title="the runner",
                    advice="It is starting or restarting; try again in a moment.",
                    comes_back="The sandbox is starting again. Try again in a moment.",
                )
            case _:
                return self._opencode()

    def _service(self, name: str) -> Backend:
        target = self.services.get(name)
        title = _TITLES.get(name, name)
        if target is None:
            raise NotFound(
                "service_absent", f"This sandbox has no {title.removeprefix('the ')}. {_HOW.get(name, '')} {_WHERE}"
            )
        return Backend(
            target=target,
            title=title,
            advice="Try again in a few seconds; the session's events say if it was stopped.",
            has_door=True,
        )

    def _tunnel(self, name: str) -> Backend:
        tunnel = tunnels.find(self.tunnels, name)
        if tunnel is None:
            raise NotFound(
                "no_tunnel", f"No tunnel is called {name!r}. The agent or you register one: POST /api/tunnels."
            )
        # the agent's server may have taken the port since
        tunnels.check_port(tunnel.port, self.reserved())
        return Backend(
            target=Target(port=tunnel.port),
            title=f"the program behind the tunnel {name!r}, port {tunnel.port},",
            advice=f"Start it, and let it listen on 127.0.0.1 or 0.0.0.0, port {tunnel.port} (not on ::1 alone).",
            keeps_prefix=tunnel.keep_prefix,
        )

    def _opencode(self) -> Backend:
        if self.opencode is None:
            raise Unavailable(
                "opencode_starting", "The agent's server is starting or restarting; try again in a moment."
            )
        return Backend(
            target=self.opencode.target,
            title="the agent's server",
            advice="It is restarted when it ends; try again in a few seconds.",
            authorization=self.opencode.authorization,
        )
