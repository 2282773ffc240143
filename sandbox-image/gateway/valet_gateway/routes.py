"""Which path is whose: what a request asks for, judged by its path as it was sent. Pure."""

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote

import msgspec
from valet_protocol.errors import NotFound
from valet_service.sandbox_token import Service

from valet_gateway.errors import HeadRefused

Kind = Literal["health", "service", "tunnel", "processes", "tools", "opencode"]

PROXIED: tuple[Literal["vscode", "vnc", "ttyd"], ...] = ("vscode", "vnc", "ttyd")
"""Services that may be proxied, by the first segment of their path."""

MCP = "/mcp"
"""Where the agent's tools are spoken to by JSON-RPC."""

TUNNEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"

_PRINTABLE = re.compile(r"/[!-\[\]-~]*")
"""ASCII without spaces, control characters and the backslash, which some programs read as a slash."""

_NOVNC_PAGE = "/vnc.html"
_NOVNC_PAGES = frozenset({"/", _NOVNC_PAGE, "/vnc_lite.html", "/vnc_auto.html"})
_NOVNC = {"autoconnect": "true", "reconnect": "true", "resize": "scale", "path": "vnc/websockify"}
"""Its settings; by default it shows a button, and looks for its WebSocket at the root of the host."""

_DECODINGS = 2
"""A program behind a proxy of its own may decode twice."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What a path means."""

    kind: Kind
    service: Service | None
    """What a person's token must open; none where no person may go, or everybody."""
    name: str = ""
    """Of the service or the tunnel."""
    prefix: str = ""
    """What is taken off before it is passed on; empty where the path stays as it is."""
    path: str
    """What is passed on. Empty if only the slash after the prefix is missing."""


def find(path: str) -> Route:
    """The route of a path without its query, still percent-encoded. Raises `HeadRefused`, `NotFound`."""
    check(path)
    first, _, rest = path[1:].partition("/")
    if path == "/health":
        return Route(kind="health", service=None, path=path)
    for service in PROXIED:
        if first == service:
            return Route(kind="service", service=service, name=service, prefix=f"/{first}", path=_below(path, 1))
    if first == "t":
        name = rest.partition("/")[0]
        if not re.fullmatch(TUNNEL_NAME, name):
            raise NotFound("no_tunnel", "A tunnel is reached at /t/<name>/, by the name it was registered with.")
        return Route(kind="tunnel", service="t", name=name, prefix=f"/t/{name}", path=_below(path, 2))
    if first == "opencode":
        return Route(kind="opencode", service="opencode", name="opencode", prefix="/opencode", path=_below(path, 1))
    if first == "pty" or path == "/v1/events" or _at(path, "/v1/processes"):
        return Route(kind="processes", service="processes", name="processes", path=path)
    if first == "api" or path == MCP:
        open_to_people = _at(path, "/api/tunnels")
        return Route(kind="tools", service="t" if open_to_people else None, name="tools", path=path)
    raise NotFound(
        "no_route",
        "Nothing is here. A sandbox has /vscode/, /vnc/, /ttyd/, /t/<tunnel>/, /v1/processes and /health.",
    )


def of_tunnel(name: str, path: str) -> Route:
    """The route of a path at a tunnel's own address, where all of it is the tunnel's. Raises `HeadRefused`."""
    check(path)
    return Route(kind="tunnel", service="t", name=name, path=path)


def desktop_page(route: Route, query: str) -> str | None:
    """noVNC's page as people are to have it, if this asks for one of its pages and leaves something of that open:
    connected at once and again after a break, as large as the window, by the WebSocket below our prefix."""
    if route.kind != "service" or route.name != "vnc" or route.path not in _NOVNC_PAGES:
        return None
    given = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    added = [f"{name}={value}" for name, value in _NOVNC.items() if name not in given]
    if not added and route.path == _NOVNC_PAGE:
        return None
    return f"{route.prefix}{_NOVNC_PAGE}?{'&'.join([*([query] if query else []), *added])}"


def if_absent(route: Route) -> bytes | None:
    """A JSON document for what a program asks for and may not have: noVNC's page wants to know its own version."""
    return b"{}" if route.name == "vnc" and route.kind == "service" and route.path == "/package.json" else None


def check(path: str) -> None:
    """Raises `HeadRefused` for a path that leaves its folder, however that is written, or has odd characters."""
    if not _PRINTABLE.fullmatch(path) or "#" in path:
        raise HeadRefused("The path must begin with a slash and be percent-encoded ASCII.")
    decoded = path
    for _ in range(_DECODINGS):
        decoded = unquote(decoded, errors="replace")
        if "\0" in decoded:
            raise HeadRefused("The path contains a NUL.")
        for piece in re.split(r"[/\\]", decoded):
            # some servers cut a parameter off before they look at the dots
            if piece.partition(";")[0] in (".", ".."):
                raise HeadRefused("The path contains a '.' or '..' segment; send it resolved.")


def check_query(query: str) -> None:
    """Raises `HeadRefused` for a query with bytes that a URL cannot have."""
    if not re.fullmatch(r"[!-~]*", query):
        raise HeadRefused("The query must be percent-encoded ASCII.")


def _below(path: str, segments: int) -> str:
    parts = path.split("/", segments + 1)
    return "/" + parts[segments + 1] if len(parts) > segments + 1 else ""


def _at(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
