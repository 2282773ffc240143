"""Where a sandbox may connect to. Pure: names are resolved elsewhere, and only addresses judged here are connected to.

The host's own loopback and the link-local range (cloud metadata services live there) are never reachable: what
listens there trusts whoever gets that far. Judging the resolved address, and connecting to that very address, is what
keeps a name that resolves differently the second time (DNS rebinding) out.
"""

import ipaddress
from collections.abc import Sequence

import msgspec
from valet_service.config_file import Network

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = tuple(ipaddress.ip_address(text) for text in ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
"""Metadata services outside the link-local range (Alibaba, Amazon over IPv6, Google over IPv6)."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`[sandbox]` of `valet.toml`."""

    network: Network
    allow_hosts: tuple[str, ...]
    """With network `none`: names that may be reached all the same; `*.example.org` takes subdomains in."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether, and where exactly."""

    addresses: tuple[str, ...] = ()
    """Connect to one of these; empty when refused."""
    reason: str = ""
    """Why it is refused, for the person who reads the agent's output."""


def allowed_name(policy: NetworkPolicy, host: str) -> Decision | None:
    """Refuse a name before it is resolved (a look-up is a message to the outside); none when it may be looked up."""
    if policy.network == "open" or any(_matches(host, pattern) for pattern in policy.allow_hosts):
        return None
    return Decision(
        reason=f"{host} is not reachable from this sandbox: its network is off."
        " Add the name to allow_hosts under [sandbox] in valet.toml to permit it."
    )


def allowed(policy: NetworkPolicy, host: str, resolved: Sequence[str]) -> Decision:
    """Whether a sandbox may connect to a host that resolves to these addresses."""
    refused = allowed_name(policy, host)
    if refused is not None:
        return refused
    usable = tuple(address for address in resolved if _reachable(address))
    if usable:
        return Decision(addresses=usable)
    if not resolved:
        return Decision(reason=f"{host} has no address")
    return Decision(reason=f"{host} is the machine's own or a link-local address, which sandboxes may not reach")


def _matches(host: str, pattern: str) -> bool:
    name, wanted = host.rstrip(".").lower(), pattern.rstrip(".").lower()
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def _reachable(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if "%" in text:
        return False
    return all(_plain(each) for each in (address, *_embedded(address)))


def _plain(address: _Address) -> bool:
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address in _METADATA
        or (address.version == 4 and (address.is_reserved or address in ipaddress.IPv4Network("0.0.0.0/8")))
        or (address.version == 6 and address.is_site_local)
    )


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    # IPv4 addresses written as IPv6: a router or the kernel would connect to the one inside
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    if address.teredo is not None:
        found += address.teredo
    if address in _NAT64 or int(address) >> 32 == 0:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found
