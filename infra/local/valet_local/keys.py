"""The secrets of an installation: made once, kept in `D/keys`, never printed but for the sign-in token."""

import os
import secrets
import time
from collections.abc import Callable

import msgspec
from valet_service import credentials
from valet_service.credentials import Key, Trust

from valet_local.files import read_if_there, write_atomically
from valet_local.layout import Layout


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform needs of its secrets to start."""

    trust: Trust
    """For the NATS server's configuration."""
    token: str
    """The sign-in token of the person who runs this installation."""


def ensure(places: Layout, *, now: Callable[[], float] = time.time) -> Keys:
    """Make what is missing and read the rest; write fresh credentials for every service and for subscribers.

    Files: `operator.seed`, `system.seed`, `account.seed` (signs runner credentials), `secret` (32 bytes,
    HMAC), `token`, `creds/<service>.creds`.
    """
    operator = _key(places, "operator")
    account = _key(places, "account")
    system = _key(places, "system")
    _once(places, "secret", lambda: os.urandom(32))
    token = _once(places, "token", lambda: f"valet_{secrets.token_urlsafe(32)}\n".encode()).decode().strip()
    moment = int(now())
    for name in (*credentials.SERVICES, credentials.SUBSCRIBER):
        text = credentials.creds(
            account, name, credentials.service_permissions(name), entropy=os.urandom(32), now=moment
        )
        write_atomically(places.creds / f"{name}.creds", text.encode())
    return Keys(trust=credentials.trust(operator=operator, system=system, account=account, now=moment), token=token)


def _key(places: Layout, name: str) -> Key:
    role: credentials.Role = "operator" if name == "operator" else "account"
    seed = _once(
        places, f"{name}.seed", lambda: credentials.key_from_entropy(role, os.urandom(32)).seed.encode() + b"\n"
    )
    return credentials.key_from_seed(seed.decode())


def _once(places: Layout, name: str, make: Callable[[], bytes]) -> bytes:
    path = places.keys / name
    content = read_if_there(path)
    if content:
        return content
    content = make()
    write_atomically(path, content)
    return content
