"""Where the requests for a model go and with which key. Pure."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from valet_service.config_file import ValetConfig

from valet_sandbox_controller import runner_spec
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal.policy import NetworkPolicy, allowed

KeyHeader = Literal["authorization", "x-api-key", "x-goog-api-key"]

_BUILTIN: dict[str, tuple[str, KeyHeader]] = {
    # the agent's SDKs append `/messages`, `/responses` or `/chat/completions`, `/models/<id>:streamGenerateContent`
    "anthropic": ("https://api.anthropic.com/v1", "x-api-key"),
    "openai": ("https://api.openai.com/v1", "authorization"),
    "google": ("https://generativelanguage.googleapis.com/v1beta", "x-goog-api-key"),
}
TOKEN_FIELDS = ("authorization", "x-api-key", "x-goog-api-key")
"""Where a sandbox's SDK puts what it believes to be the provider's key: the portal's token."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as the portal reaches it."""

    base_url: str
    key_header: KeyHeader
    key: str | None
    missing_variable: str | None
    """The environment variable that should hold the key and does not."""
    direct: bool
    """On this machine or link: never through a proxy of the environment."""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """One request's way."""

    route: Route
    url: str


def table(config: ValetConfig, environ: Mapping[str, str]) -> dict[str, Route]:
    """The routes by provider id."""
    routes: dict[str, Route] = {}
    for provider in config.providers:
        builtin = runner_spec.is_builtin(provider)
        base_url, key_header = _BUILTIN[provider.id] if builtin else (provider.base_url or "", "authorization")
        key = environ.get(provider.api_key_env) if provider.api_key_env else None
        routes[provider.id] = Route(
            base_url=base_url.rstrip("/"),
            key_header=key_header,
            key=key or None,
            missing_variable=provider.api_key_env if provider.api_key_env and not key else None,
            direct=_is_near(urlsplit(base_url).hostname or ""),
        )
    return routes


def destination(routes: Mapping[str, Route], target: str) -> Destination:
    """Where `/model/<provider>/<rest>` goes. Raises `BadPortalRequest` (404, 401)."""
    path, question, query = target.partition("?")
    parts = path.split("/", 3)
    if len(parts) < 4 or parts[1] != "model":
        raise BadPortalRequest(404, "the portal serves /model/<provider>/…, CONNECT, and http:// by proxy")
    if ".." in parts[3].split("/"):
        raise BadPortalRequest(400, "a path with `..` is not passed on")
    route = routes.get(parts[2])
    if route is None:
        known = ", ".join(sorted(routes)) or "none"
        raise BadPortalRequest(404, f"there is no model provider {parts[2]!r}; configured: {known}")
    if route.missing_variable is not None:
        raise BadPortalRequest(
            401,
            f"the key of provider {parts[2]!r} is missing: set {route.missing_variable} where `valet up` is started",
        )
    return Destination(route=route, url=f"{route.base_url}/{parts[3]}{question}{query}")


def _is_near(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    is_address = host.replace(".", "").isdigit() or ":" in host
    return is_address and not allowed(NetworkPolicy(network="open", allow_hosts=()), host, [host]).addresses
