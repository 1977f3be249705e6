"""How long a client of plain HTTP may leave its answers unread."""
# TODO-DOC A connection of plain HTTP that becomes a socket: proxies and some clients ask on one that served requests
# TODO-DOC before.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from aiohttp import web

from ..protocols.reply import refusal
from ..transport.buffer_limits import ReadSizeLimit, limit_send_buffer
from .sniffer import hand_over

WRITE_TIMEOUT_S = 60.0
"""The server's library would wait for ever."""
HTTP_WRITE_LIMIT_BYTES = 1
"""More than this in our own buffer is noticed. Were a rest let pass, a closed connection would stay for its sake."""


class WriteTimeout(asyncio.Protocol):
    """Stands between a transport and `protocol`, which sees nothing of it; cuts a client that takes nothing."""

    def __init__(self, protocol: asyncio.Protocol, limit_s: float = WRITE_TIMEOUT_S) -> None:
        self._protocol, self._limit_s = protocol, limit_s
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        limit_send_buffer(transport)
        self._transport.set_write_buffer_limits(HTTP_WRITE_LIMIT_BYTES)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._limit_s, self._transport.abort)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._cancel_deadline()
        self._protocol.resume_writing()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpConnection(WriteTimeout):
    """A connection of plain HTTP; `socket` makes the protocol that takes it over when it is asked to become one."""

    def __init__(
        self,
        handler: web.RequestHandler,
        write_timeout_s: float,
        socket: Callable[[], asyncio.Protocol | ReadSizeLimit],
    ) -> None:
        super().__init__(handler, write_timeout_s)
        self._handler, self._socket = handler, socket

    def switch_to_websocket(self, head: bytes) -> None:
        """Give the connection to the sockets' side, whose first request has this `head`.

        To the handler it is lost: the request that it is at is cancelled.
        """
        self._cancel_deadline()
        self._handler.transport = None  # or it would close what is another's now
        self._handler.connection_lost(None)
        hand_over(self._transport, self._socket(), head)


async def upgrade(request: web.Request) -> web.StreamResponse:
    """For the paths of sockets. Who wants none is told to ask for one."""
    connection = None if request.transport is None else request.transport.get_protocol()
    wanted = request.headers.get("Upgrade", "").lower() == "websocket"
    if wanted and isinstance(connection, HttpConnection):
        connection.switch_to_websocket(_head(request))
        await asyncio.get_running_loop().create_future()  # never done: it ends with the cancellation
    response = refusal(
        HTTPStatus.UPGRADE_REQUIRED, "upgrade_required", "speech goes over a WebSocket: send an upgrade"
    ).response()
    response.headers["Upgrade"] = "websocket"
    return response


def _head(request: web.Request) -> bytes:
    """The request as it came, up to the blank line."""
    lines = [f"{request.method} {request.raw_path} HTTP/1.1".encode("utf-8", "surrogateescape")]
    lines += [name + b": " + value for name, value in request.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"
