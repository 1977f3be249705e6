"""Bounds what is read from and written to a connection at once.

Reads: asyncio reads up to 256 KiB in one callback, which can hold thousands of small frames; parsing them all would
delay every other connection, as would parsing a little of thousands of connections. `ReadSizeLimit` reads little, and
its budget bounds what all connections parse before the event loop runs on.

Writes: with the kernel's default buffers of megabytes, a client that reads steadily blocks for half a minute each time
they are full, which looks like a slow consumer. `limit_send_buffer` keeps them small, so that a slow consumer is
detected early and a steady one is not mistaken for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from typing import cast

from .turn_budget import TurnBudget

READ_SIZE_BYTES = 1024
"""Bytes read in one callback: longer than most messages; at most about 170 frames, which take 2 ms to parse."""
LEAST_BYTES = 64
"""What a read counts at least: waking a task takes 0.1 ms, whatever was read."""
WRITE_LIMIT_BYTES = 4096
"""Bytes in the transport's write buffer above which a write is blocked."""
UNSENT_BYTES = 16_384
"""Unsent bytes that the kernel accepts from the transport; bytes in flight do not count."""
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)


class ReadSizeLimit(asyncio.BufferedProtocol):
    """Passes a connection on to `protocol`, little at a time; pauses reading while the `budget` is used up."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        budget: TurnBudget,
        caller: Callable[[], str],
        read_bytes: int = READ_SIZE_BYTES,
    ) -> None:
        """`caller` returns the name of the client's caller, which is known better after its handshake."""
        self._protocol, self._budget, self._caller = protocol, budget, caller
        # A memoryview, because TLS reads into slices of the buffer, and slices of a bytearray are copies.
        self._buffer = memoryview(bytearray(read_bytes))
        self._held = b""
        """Bytes that wait for the budget."""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(bytes(self._buffer[:nbytes]))

    def receive(self, data: bytes) -> None:
        """Passes `data` on when the budget allows it; until then, nothing more is read."""
        if self._held:
            self._held += data
        elif self._budget.take(cost := self.cost(len(data))):
            self.data_received(data)
        else:
            self._held = data
            self._transport.pause_reading()
            self._budget.wait(cost, self._parse_held, self._caller())

    def cost(self, nbytes: int) -> int:
        """What a read of `nbytes` takes of the budget."""
        return max(nbytes, LEAST_BYTES)

    def data_received(self, data: bytes) -> None:
        """Accepts data; also called directly with what was read before this protocol took over."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _parse_held(self) -> None:
        data, self._held = self._held, b""
        if not self._transport.is_closing():
            self._transport.resume_reading()  # before `protocol` gets the data, and perhaps pauses reading itself
            self.data_received(data)


class WriteDeadline:
    """Aborts a connection whose writes have been paused for `limit_s` seconds, because its client does not read."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.WriteTransport) -> None:
        """Writes to `transport` are paused from now on."""
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, transport.abort)

    def cancel(self) -> None:
        """Writes are resumed, or the connection is lost. Safe without `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limit_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Limits the unsent bytes in the kernel to `UNSENT_BYTES`, where the platform offers it."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None and _TCP_NOTSENT_LOWAT is not None:
        with contextlib.suppress(OSError):  # optional: the gateway works without it
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
