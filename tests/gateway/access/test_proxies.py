"""The address of a client: believed from trusted proxies only, and never what the client itself wrote."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.proxies import TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("fd00::1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["198.51.100.7, nonsense"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("?", ["198.51.100.7"], "?"),
    ],
)
def test_address_of_the_client(peer: str, headers: list[str], client: str) -> None:
    assert PROXIES.client_address(peer, headers) == client


def test_without_proxies_no_header_is_believed() -> None:
    assert TrustedProxies().client_address("10.0.0.1", ["198.51.100.7"]) == "10.0.0.1"
    assert not TrustedProxies().trusts("10.0.0.1")


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy.example", ""])
def test_what_is_no_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        TrustedProxies([network])
