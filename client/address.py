"""Addresses of servers as people write them: `host:8000`, `http://host:8000`, `wss://host/v1/speech`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server's address, from which WebSocket and HTTP URLs are made."""

    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    netloc: str
    """Host and port as written."""
    path: str
    query: str
    tls: bool

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """Reads a ws, wss, http or https URL; without a scheme it is ws. Raises ValueError for any other."""
        parts = urlsplit(url if "://" in url else f"ws://{url}")
        if parts.scheme not in ("ws", "wss", "http", "https"):
            raise ValueError(f"address must be a ws, wss, http or https URL, got {url!r}")
        if not parts.hostname:
            raise ValueError(f"address must name a host, got {url!r}")
        tls = parts.scheme in ("wss", "https")
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname, port, parts.netloc, parts.path, parts.query, tls)

    def websocket_url(self, path: str, query: str = "") -> str:
        return urlunsplit(("wss" if self.tls else "ws", self.netloc, path, query, ""))

    def http_url(self, path: str) -> str:
        return urlunsplit(("https" if self.tls else "http", self.netloc, path, "", ""))
