"""One port for WebSockets and plain HTTP: the head of the first request selects the library that serves it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import cast

from voxgate.pipeline.errors import AtCapacity

from ..errors import SOCKETS_RETRY_MS, Limit
from ..protocols.reply import Reply, closing_bytes, error_reply, refusal
from ..transport.buffer_limits import ReadSizeLimit
from ..transport.connection_pool import ConnectionPlace, ConnectionPool
from ..transport.turn_budget import TurnBudget

ServerFactory = Callable[[ConnectionPlace], asyncio.Protocol | ReadSizeLimit]
"""Makes the protocol that serves a connection and releases its place."""
PROBE_PATHS = ("/healthz", "/readyz", "/health")
"""Paths of the probes, which the pool serves when it is full."""
MAX_HEAD_BYTES = 16_384
"""Maximum size of a request head; the libraries have lower limits of their own."""
FIRST_REQUEST_BYTES = 256
"""What the first request of a connection counts in the budget of a turn: it takes as long as parsing so many bytes."""

_HEAD_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"^upgrade:[^\r\n]*\bwebsocket\b", re.IGNORECASE | re.MULTILINE)
_PROBE = re.compile(rb"(GET|HEAD) (%s)[? ]" % b"|".join(path.encode() for path in PROBE_PATHS))
_TOO_LARGE = refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "bad_request", f"the head must have at most {MAX_HEAD_BYTES} bytes"
)
_EARLY = refusal(
    HTTPStatus.BAD_REQUEST, "bad_request", "frames must follow the answer to the handshake"
)  # RFC 6455, 4.1
FULL = error_reply(AtCapacity("all connections are in use", retry_after_ms=SOCKETS_RETRY_MS, reached=Limit.CONNECTIONS))


class ProtocolSniffer(asyncio.Protocol):
    """Waits for the end of the request head, then hands the connection and the received bytes to its server.

    A connection has a place in `pool` from its accept on, which its server releases; a connection with TLS has its
    `place` already. A request that the pool cannot
    serve is refused. First requests share `budget` with what other connections send, because answering one takes long:
    of many that arrive at once, some wait for later turns of the event loop.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        websocket: ServerFactory,
        http: ServerFactory,
        budget: TurnBudget,
        place: ConnectionPlace | None = None,
    ) -> None:
        self._pool = pool
        self._budget = budget
        self._websocket = websocket
        self._http = http
        self._head = bytearray()
        self._taken = place
        self._transport: asyncio.Transport
        self._place: ConnectionPlace

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._place = self._taken or self._pool.add(self._transport)

    def data_received(self, data: bytes) -> None:
        searched = max(0, len(self._head) - len(_HEAD_END) + 1)
        self._head += data
        end = self._head.find(_HEAD_END, searched)
        if 0 <= end <= MAX_HEAD_BYTES:
            self._hand_over(bytes(self._head[:end]), len(self._head) > end + len(_HEAD_END))
        elif len(self._head) > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def connection_lost(self, _: Exception | None) -> None:
        self._place.release()

    def _hand_over(self, head: bytes, more: bool) -> None:
        upgrade = _UPGRADE.search(head) is not None
        if upgrade and more:
            self._refuse(_EARLY)
        elif not self._place.may_serve(probe=not upgrade and _PROBE.match(head) is not None):
            self._refuse(FULL)
        else:
            serve = self._websocket if upgrade else self._http
            if self._budget.take(FIRST_REQUEST_BYTES):
                self._serve_by(serve)
            else:
                self._transport.pause_reading()
                self._budget.wait(FIRST_REQUEST_BYTES, partial(self._serve_later, serve), self._place.caller)

    def _serve_by(self, serve: ServerFactory) -> None:
        hand_over(self._transport, serve(self._place), bytes(self._head))

    def _serve_later(self, serve: ServerFactory) -> None:
        if not self._transport.is_closing():
            self._serve_by(serve)

    def _refuse(self, answer: Reply) -> None:
        self._transport.write(closing_bytes(answer))
        self._transport.close()


def hand_over(transport: asyncio.Transport, server: asyncio.Protocol | ReadSizeLimit, received: bytes) -> None:
    """Makes `server` the protocol of the connection and passes it the `received` bytes."""
    # The event loop chooses how to read when reading starts, and the new protocol may read into buffers.
    transport.pause_reading()
    transport.set_protocol(server)
    server.connection_made(transport)
    transport.resume_reading()
    server.data_received(received)
