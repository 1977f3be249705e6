"""Trusted proxies: the address of a client whose connection comes from a load balancer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The networks whose X-Forwarded-For headers are believed. Raises ValueError for what is no network."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)

    def trusts(self, peer: str) -> bool:
        """Whether the address `peer` is that of a proxy."""
        address = _parse(peer)
        return address is not None and any(address in network for network in self._networks)

    def client_address(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """The address of the client behind `peer`; `forwarded_for` are the X-Forwarded-For headers in their order.

        Every proxy appends the address of its own peer. The last address that is not a proxy's is the client's: a
        client can write only what stands before it. Without a usable address it is `peer`.
        """
        client = peer
        for entry in reversed(",".join(forwarded_for).split(",")):
            if not self.trusts(client) or _parse(entry) is None:
                break
            client = str(_parse(entry))
        return client


def _parse(text: str) -> _Address | None:
    """The address in `text`, which may have a port and brackets; an IPv4-mapped one as IPv4. None without one."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
