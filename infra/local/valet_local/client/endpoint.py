"""Where the API is and how to sign in: flags, then environment, then what the platform of a data directory
wrote.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from valet_local.client.errors import BadEndpoint
from valet_local.errors import NotRunning
from valet_local.invocation import typed
from valet_local.layout import layout
from valet_local.state import running


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An address and a bearer token."""

    url: str
    """`http://host:port`, without `/api`."""
    token: str


def named(url: str | None, token: str | None, environment: Mapping[str, str]) -> Endpoint | None:
    """The endpoint a person named by flags or by `VALET_URL` and `VALET_TOKEN`; None if they named none.

    Raises `BadEndpoint` for half of one, or an address that is none. A token alone is not enough to name one,
    but an address alone is a mistake: without its token the API refuses everything.
    """
    url = url or environment.get("VALET_URL") or None
    if url is None:
        if token:
            raise BadEndpoint("--token needs the address it belongs to: give --url as well, or set VALET_URL")
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(
            f"{url!r} is no address of a platform: not an http or https URL such as http://127.0.0.1:8700"
        )
    token = token or environment.get("VALET_TOKEN") or None
    if token is None:
        raise BadEndpoint(f"{url} needs a token: give --token or set VALET_TOKEN (`{typed('up')}` prints it)")
    return Endpoint(url=url.rstrip("/").removesuffix("/api"), token=token)


def of_platform(data_dir: Path) -> Endpoint | None:
    """The platform that is ready on a data directory, or None."""
    try:
        state = running(layout(data_dir))
    except PermissionError:
        raise BadEndpoint(
            f"the platform on {data_dir} belongs to another user; give its --url and a --token of yours"
        ) from None
    return Endpoint(url=state.url, token=state.token) if state else None


def find(data_dir: Path, url: str | None, token: str | None, environment: Mapping[str, str]) -> Endpoint:
    """The endpoint to use. Raises `BadEndpoint` and `NotRunning`."""
    endpoint = named(url, token, environment) or of_platform(data_dir)
    if endpoint is None:
        raise NotRunning(data_dir)
    return endpoint
