"""Addresses of programs in this sandbox. Pure: nothing is looked up, so nothing can lead elsewhere."""

import re

import msgspec

from valet_gateway.errors import BadTarget

_HTTP = re.compile(r"http://127\.0\.0\.1:([0-9]{1,5})/?")
_UNIX = re.compile(r"unix:(/[^\0]+)")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a program serves HTTP: a port of 127.0.0.1, or a unix socket."""

    port: int | None = None
    path: str | None = None

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http://127.0.0.1:{self.port}"

    @property
    def base(self) -> str:
        """What a request's URL begins with."""
        return "http://localhost" if self.path else f"http://127.0.0.1:{self.port}"

    @property
    def authorities(self) -> frozenset[str]:
        """How the program may name itself in an absolute URL."""
        hosts = ("127.0.0.1", "localhost", "0.0.0.0", "[::1]")
        return frozenset(f"{host}:{self.port}" for host in hosts) if self.port else frozenset({"localhost"})


def parse(text: str) -> Target:
    """Read `http://127.0.0.1:<port>` or `unix:</path>`. Raises `BadTarget`."""
    if (found := _HTTP.fullmatch(text)) and 1 <= int(found[1]) <= 65_535:
        return Target(port=int(found[1]))
    if found := _UNIX.fullmatch(text):
        return Target(path=found[1])
    raise BadTarget(text)
