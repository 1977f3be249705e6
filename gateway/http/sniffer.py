"""One port for WebSockets and plain HTTP: the head of the first request selects the library that serves it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from ..transport.buffer_limits import ReadSizeLimit

MAX_HEAD_BYTES = 16_384
"""Maximum size of a request head; the libraries have lower limits of their own."""

_HEAD_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"^upgrade:[^\r\n]*\bwebsocket\b", re.IGNORECASE | re.MULTILINE)
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_EARLY = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
"""A client must not send frames before the handshake is answered (RFC 6455, section 4.1)."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class ProtocolSniffer(asyncio.Protocol):
    """Waits for the end of the request head, then hands the connection and the received bytes to its server.

    A connection whose head is not complete within `deadline_s` seconds is aborted; `http` returns None when there are
    too many connections.
    """

    def __init__(
        self,
        websocket: Callable[[], asyncio.Protocol | ReadSizeLimit | None],
        http: Callable[[], asyncio.Protocol | None],
        deadline_s: float,
    ) -> None:
        self._websocket = websocket
        self._http = http
        self._deadline_s = deadline_s
        self._head = bytearray()
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(self._deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        searched = max(0, len(self._head) - len(_HEAD_END) + 1)
        self._head += data
        end = self._head.find(_HEAD_END, searched)
        if 0 <= end <= MAX_HEAD_BYTES:
            self._hand_over(bytes(self._head[:end]), len(self._head) > end + len(_HEAD_END))
        elif len(self._head) > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def connection_lost(self, _: Exception | None) -> None:
        self._deadline.cancel()

    def _hand_over(self, head: bytes, more: bool) -> None:
        upgrade = _UPGRADE.search(head) is not None
        if upgrade and more:
            self._refuse(_EARLY)
            return
        server = self._websocket() if upgrade else self._http()
        if server is None:
            self._refuse(_FULL)
            return
        self._deadline.cancel()
        hand_over(self._transport, server, bytes(self._head))

    def _refuse(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._transport.close()


def hand_over(transport: asyncio.Transport, server: asyncio.Protocol | ReadSizeLimit, received: bytes) -> None:
    """Makes `server` the protocol of the connection and passes it the `received` bytes."""
    # The event loop chooses how to read when reading starts, and the new protocol may read into buffers.
    transport.pause_reading()
    transport.set_protocol(server)
    server.connection_made(transport)
    transport.resume_reading()
    server.data_received(received)
