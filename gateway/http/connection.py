"""A connection of plain HTTP: its write timeout, and its upgrade to a WebSocket after it served requests.

Proxies and some clients upgrade connections that served requests before.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import web

from ..transport.buffer_limits import WriteDeadline, limit_send_buffer
from ..transport.connection_pool import ConnectionPlace
from .request_handler import RequestHandler
from .sniffer import ServerFactory, hand_over

WRITE_TIMEOUT_S = 60.0
"""Seconds without progress after which an unread answer is cut; aiohttp itself has no limit."""
HTTP_WRITE_LIMIT_BYTES = 1
"""High-water mark of the write buffer. A larger rest would keep a closed connection alive without a timeout."""


class WriteTimeout(asyncio.Protocol):
    """Forwards everything between a transport and `protocol`; aborts when writing is paused for `limit_s` seconds."""

    def __init__(self, protocol: asyncio.Protocol, limit_s: float = WRITE_TIMEOUT_S) -> None:
        self._protocol = protocol
        self._deadline = WriteDeadline(limit_s)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limit_send_buffer(transport)
        self._transport.set_write_buffer_limits(HTTP_WRITE_LIMIT_BYTES)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._deadline.start(self._transport)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._deadline.cancel()
        self._protocol.resume_writing()


class HttpConnection(WriteTimeout):
    """A connection of plain HTTP; `socket` makes the protocol that takes over after an upgrade."""

    def __init__(
        self,
        handler: RequestHandler,
        write_timeout_s: float,
        place: ConnectionPlace,
        socket: ServerFactory,
    ) -> None:
        super().__init__(handler, write_timeout_s)
        self.place = place
        """Released when the connection is lost, unless a WebSocket took it over."""
        self._handler, self._socket = handler, socket

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.place.release()

    def eof_received(self) -> bool:
        """Answers the GET of a client that sends no more, then closes; a POST ends, because a client so stops speech.

        asyncio closes both directions of TLS.
        """
        answers = self._handler.answers_get and self._transport.get_extra_info("sslcontext") is None
        if answers:
            self._handler.close()
        return answers

    def switch_to_websocket(self, head: bytes) -> None:
        """Hands the connection to a WebSocket protocol, whose first request has this `head`.

        The HTTP handler sees a lost connection, which cancels its current request.
        """
        self._deadline.cancel()
        self._handler.transport = None  # otherwise it would close the connection
        self._handler.connection_lost(None)
        hand_over(self._transport, self._socket(self.place), head)


def request_head(request: web.Request) -> bytes:
    """The head of the request as it was received, up to and including the blank line."""
    lines = [f"{request.method} {request.raw_path} HTTP/1.1".encode("utf-8", "surrogateescape")]
    lines += [name + b": " + value for name, value in request.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"
