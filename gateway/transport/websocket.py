"""The socket as a session's connection uses it, on the websockets library."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Event, State

from ..access.usage import TokenBucket
from ..protocols.endpoint import FirstMessageKey
from ..session.protocol import WireProtocol
from .buffer_limits import limit_send_buffer
from .connection import SocketClosed
from .sessions import ConnectionSlot

SEND_BUFFER_BYTES = 16_384
PINGS_PER_S = 20.0
"""The library answers each; nobody needs more."""
ABORT_ABOVE_BYTES = 131_072
"""Write buffer of a client that makes the library answer (pings) without reading what it answers."""

CLOSE_S = 1.0
"""How long a client may take to answer a close before its connection is cut; also one that answers no ping."""

_BINARY = 0x80 | Opcode.BINARY


def frame_head(length: int) -> bytes:
    """What comes before the payload of an unfragmented, unmasked binary frame (RFC 6455, section 5.2)."""
    if length < 126:
        return bytes((_BINARY, length))
    if length < 65536:
        return struct.pack("!BBH", _BINARY, 126, length)
    return struct.pack("!BBQ", _BINARY, 127, length)


class BoundedConnection(ServerConnection):
    """A server connection with small buffers, that is cut when its write buffer grows all the same."""

    slot: ConnectionSlot | None = None
    """Among the gateway's sockets, and whose it is; taken during the handshake."""
    wire_protocol: WireProtocol
    """What is spoken on it; set likewise."""
    first_message_key: FirstMessageKey | None = None
    """Who calls is not known yet, and there is no slot: the first message has the key."""
    first: str | bytes | None = None
    """A message that was read before there was anybody to receive it."""
    _probes = itertools.count()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pings = TokenBucket(PINGS_PER_S)
        limit_send_buffer(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):  # a hint: speech works without it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.slot is not None:  # the handshake may have failed after it was taken
            self.slot.release()

    def hold_slot(self, slot: ConnectionSlot) -> None:
        """Have the slot until the connection is lost; not at all if it is lost already."""
        self.slot = slot
        if self.state is State.CLOSED:
            slot.release()

    def data_received(self, data: bytes) -> None:
        if self.request is not None and self.state is State.CONNECTING:
            # Frames before the handshake's answer: the library would read them, and fail if it comes to refuse.
            self.transport.abort()
            return
        super().data_received(data)
        # The library answers pings without regard to flow control.
        if self.state is State.OPEN and self.transport.get_write_buffer_size() > ABORT_ABOVE_BYTES:
            self.transport.abort()

    def process_event(self, event: Event) -> None:
        super().process_event(event)
        ping = isinstance(event, Frame) and event.opcode is Opcode.PING
        if ping and self._pings.take(self.loop.time()) and self.state is State.OPEN:
            self.protocol.fail(CloseCode.POLICY_VIOLATION, "ping flood")
            self.send_data()
            self.transport.pause_reading()
            self.loop.call_later(CLOSE_S, self.transport.abort)

    async def receive(self) -> str | bytes:
        if self.first is not None:
            first, self.first = self.first, None
            return first
        try:
            return await self.recv()
        except ConnectionClosed:
            raise SocketClosed from None

    # The library's `send` writes, then waits, in one; here a write that waits has to show at once. So its two
    # halves, as `send` and `drained`. Messages are never fragmented, which is all that it does besides.

    def send(self, message: str | bytes) -> None:  # type: ignore[override]  # see above
        if self.state is not State.OPEN:
            raise SocketClosed
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
            self.send_data()
        else:
            # Dozens of these leave in the time of one spoken second of each listener's: the library's way of making a
            # frame takes longer than the network's of sending it. A server masks nothing (RFC 6455, section 5.2).
            self.transport.write(frame_head(len(message)) + message)

    @property
    def blocked(self) -> bool:
        return self.paused

    async def wait_writable(self) -> None:
        await self.drain()

    def probe(self, on_read: Callable[[], None]) -> None:
        if self.state is not State.OPEN:
            raise SocketClosed
        # As the library's own `ping`, which would wait.
        pong = self.loop.create_future()
        pong.add_done_callback(lambda pong: None if pong.cancelled() or pong.exception() else on_read())
        name = next(self._probes).to_bytes(8)
        self.pending_pings[name] = (pong, self.loop.time())
        self.protocol.send_ping(name)
        self.send_data()

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.close(code, reason)
        except TimeoutError:
            self.transport.abort()
