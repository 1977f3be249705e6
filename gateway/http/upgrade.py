"""A connection of plain HTTP that becomes a socket: proxies and some clients ask on one that served requests before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from ..small_reads import SmallReads
from .doorstep import hand_over
from .reply import refusal
from .unread import UnreadLimit


class HttpConnection(UnreadLimit):
    """A connection of plain HTTP; `socket` makes the protocol that takes it over when it is asked to become one."""

    def __init__(
        self,
        handler: web.RequestHandler,
        unread_s: float,
        socket: Callable[[], asyncio.Protocol | SmallReads],
    ) -> None:
        super().__init__(handler, unread_s)
        self._handler, self._socket = handler, socket

    def change_over(self, head: bytes) -> None:
        """Give the connection to the sockets' side, whose first request has this `head`.

        To the handler it is lost: the request that it is at is cancelled.
        """
        self._calm()
        self._handler.transport = None  # or it would close what is another's now
        self._handler.connection_lost(None)
        hand_over(self._transport, self._socket(), head)


async def upgrade(request: web.Request) -> web.StreamResponse:
    """For the paths of sockets. Who wants none is told to ask for one."""
    connection = None if request.transport is None else request.transport.get_protocol()
    wanted = request.headers.get("Upgrade", "").lower() == "websocket"
    if wanted and isinstance(connection, HttpConnection):
        connection.change_over(_head(request))
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
