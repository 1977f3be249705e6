"""Which web pages may use the gateway: its own, those at an address, and those that are listed."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit


def origin_and_host(origins: Sequence[str], hosts: Sequence[str]) -> tuple[str | None, str | None]:
    """What a request's `Origin` and `Host` headers come to: two origins are never allowed, two hosts are none."""
    return ",".join(origins) if origins else None, hosts[0] if len(hosts) == 1 else None


def origin_allowed(origin: str | None, host: str | None, allowed: tuple[str, ...]) -> bool:
    """Whether a page of `origin` may use the gateway at `host` (the Host header).

    Without an Origin it is no browser. The gateway's own page may if it was reached by an address or as
    localhost: a foreign name that was made to point here (DNS rebinding) is none of both. Other names have to
    be listed.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    if host is None:
        return False
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        same = (page.hostname, page.port or _port(page.scheme)) == (
            own.hostname,
            own.port or _port(page.scheme),
        )
    except ValueError:
        return False
    plain = page.scheme in ("http", "https") and page.username is None and not page.path
    return plain and same and page.hostname is not None and _is_address(page.hostname)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_address(hostname: str) -> bool:
    if hostname == "localhost":
        return True
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True
