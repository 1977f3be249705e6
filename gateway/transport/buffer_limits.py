"""Reads a connection in small pieces, one a turn of the event loop: a flood on one costs the others little.

An event loop reads what the kernel holds, up to 256 KiB at once, and the library then parses thousands of tiny frames
in one go; nobody else is served meanwhile.
"""
# TODO-DOC How much may lie unsent between us and a client: little, so that who reads slowly shows early, and as what
# TODO-DOC he is. With the megabytes that a kernel takes by itself, a client that reads steadily seems to stop for
# TODO-DOC half a minute whenever they are full.

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import cast

READ_SIZE_BYTES = 1024
"""More than messages usually have; at most some 150 frames, which take two milliseconds."""


class ReadSizeLimit(asyncio.BufferedProtocol):
    """Stands between a transport and `protocol`, which sees nothing of it. Pauses after each full piece."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        # A view: TLS reads piece after piece into slices of it, and a bytearray's would be copies.
        self._buffer = memoryview(bytearray(READ_SIZE_BYTES))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))
        # Whoever paused it meanwhile will also resume it.
        if nbytes == READ_SIZE_BYTES and self._transport.is_reading():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def data_received(self, data: bytes) -> None:
        """Also for what was read before this stood here."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


WRITE_LIMIT_BYTES = 4096
"""Above this in our own buffer a write waits."""
UNSENT_BYTES = 16_384
"""In the kernel's."""
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)


def limit_send_buffer(transport: asyncio.BaseTransport) -> None:
    """Have the kernel take no more than `UNSENT_BYTES` ahead of the network; what is on its way does not count."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None and _TCP_NOTSENT_LOWAT is not None:
        with contextlib.suppress(OSError):  # a hint: speech works without it
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
