"""Claims about where a sandbox may connect to."""

import pytest
from valet_sandbox_controller.portal.policy import NetworkPolicy, allowed, allowed_name

OPEN = NetworkPolicy(network="open", allow_hosts=())
CLOSED = NetworkPolicy(network="none", allow_hosts=("packages.test", "*.example.org"))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "0.1.2.3",
        "::1",
        "::",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "100.100.100.200",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:0001::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "not an address",
    ],
)
def test_the_hosts_own_and_link_local_addresses_are_refused(address: str) -> None:
    decision = allowed(OPEN, "name.example", [address])
    assert decision.addresses == ()
    assert "name.example" in decision.reason


@pytest.mark.parametrize("address", ["93.184.216.34", "10.0.0.7", "192.168.1.5", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_and_private_addresses_are_reachable_when_the_network_is_open(address: str) -> None:
    assert allowed(OPEN, "name.example", [address]).addresses == (address,)


def test_of_a_name_with_good_and_bad_addresses_only_the_good_are_used() -> None:
    assert allowed(OPEN, "rebinding.example", ["127.0.0.1", "93.184.216.34"]).addresses == ("93.184.216.34",)


def test_a_name_is_refused_before_it_is_looked_up_when_the_network_is_off() -> None:
    refused = allowed_name(CLOSED, "evil.test")
    assert refused is not None
    assert "allow_hosts" in refused.reason


@pytest.mark.parametrize("host", ["packages.test", "Packages.TEST.", "a.example.org", "a.b.example.org"])
def test_listed_names_are_reachable_when_the_network_is_off(host: str) -> None:
    assert allowed_name(CLOSED, host) is None


@pytest.mark.parametrize("host", ["example.org", "notexample.org", "packages.test.evil", "evilpackages.test"])
def test_names_that_only_look_like_listed_ones_are_refused(host: str) -> None:
    assert allowed_name(CLOSED, host) is not None


def test_a_listed_name_that_resolves_to_the_host_itself_is_refused() -> None:
    assert allowed(CLOSED, "packages.test", ["127.0.0.1"]).addresses == ()
