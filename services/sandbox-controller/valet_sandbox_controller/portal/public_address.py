"""Where the ports of sandboxes are, for us and for people's browsers. Pure."""

import ipaddress
from collections.abc import Mapping

import msgspec
from valet_service import config_file
from valet_service.config_file import Sandbox
from valet_service.errors import BadSettings

LISTEN = "VALET_SANDBOX_LISTEN"
PORTS = "VALET_SANDBOX_PORTS"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ports are."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    name: str = "127.0.0.1"
    """What people's browsers call it."""
    ports: range | None = None
    """The only ones to take; none for any that is free."""
    pattern: str | None = None
    """How browsers reach a port through a proxy: a URL with `{port}` in it."""

    def url(self, port: int) -> str:
        """What people are given for a port."""
        return self.pattern.replace("{port}", str(port)) if self.pattern else f"http://{self.name}:{port}"


def address(sandbox: Sandbox, environ: Mapping[str, str]) -> Address:
    """On this machine's loopback, or, for browsers elsewhere (`public_host`), on all its IPv4 addresses.

    Where the addresses here are not the ones people see, in a container, the environment says where to listen and on
    which ports (those that are published), and goes before the file. Raises `BadSettings`.
    """
    host = environ.get(LISTEN) or ("127.0.0.1" if sandbox.public_host is None else "0.0.0.0")
    ports = environ.get(PORTS) or sandbox.public_ports
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise BadSettings(f"{LISTEN}={host!r} is not an address of this machine, such as 0.0.0.0") from None
    try:
        return Address(
            host=host,
            name=sandbox.public_host or "127.0.0.1",
            ports=None if ports is None else config_file.port_range(ports),
            pattern=sandbox.public_url,
        )
    except ValueError as error:  # the file's has been checked
        raise BadSettings(f"{PORTS}={error}") from None
