"""Plain HTTP requests without a library, so that they can be malformed."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any

from fakes.waiting import DEADLINE_S


@dataclass(frozen=True)
class RawAnswer:
    """Status, head and body of an answer; status 0 when the connection was closed without one."""

    status: int
    head: str
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def http_request(
    method: str, path: str, *headers: str, host: str = "127.0.0.1", body: bytes = b"", keep_alive: bool = False
) -> bytes:
    """A request with `Host` and, where it has a body, `Content-Length`."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    if not keep_alive:
        lines.append("Connection: close")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + body


async def ask_raw(port: int, request: bytes, *, tls: ssl.SSLContext | None = None) -> RawAnswer:
    """Send `request` on a connection of its own and read until the gateway closes it. Raises TimeoutError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 27, ssl=tls)
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(request)
            received = await reader.read()
    except ConnectionError:
        received = b""
    finally:
        writer.transport.abort()
    head, _, body = received.partition(b"\r\n\r\n")
    if not head:
        return RawAnswer(0, "", b"")
    if b"chunked" in head.lower():
        body = _unchunk(body)
    return RawAnswer(int(head.split(b" ", 2)[1]), head.decode("latin-1"), body)


async def ask(
    port: int, method: str, path: str, *headers: str, host: str = "127.0.0.1", body: bytes = b""
) -> RawAnswer:
    """As `ask_raw`, with a well-formed request."""
    return await ask_raw(port, http_request(method, path, *headers, host=host, body=body))


def _unchunk(body: bytes) -> bytes:
    parts, at = [], 0
    while (end := body.find(b"\r\n", at)) >= 0 and (size := int(body[at:end], 16)) > 0:
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size
    return b"".join(parts)


class IdleConnections:
    """Connections to the gateway on which nothing is sent after an optional first request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, count: int, request: bytes = b"") -> None:
        """Open `count` more; with a `request`, wait for the beginning of its answer or the end of the connection."""
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.append(writer)
            if request:
                writer.write(request)
                async with asyncio.timeout(DEADLINE_S):
                    await reader.read(4096)

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
