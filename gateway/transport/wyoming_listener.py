"""Listens for Home Assistant's Wyoming protocol on a port of its own: events over TCP, without keys and TLS.

Its connections are sockets as all others: they share the limits, the queue and the drain of `Sessions`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from voxgate.pipeline.errors import VoxgateError
from wyoming.event import async_read_event

from ..access.auth import AccessControl
from ..access.rights import SPEAK
from ..observability.events import Observer
from ..protocols.wyoming import Wyoming, encode_error, encode_message
from ..session.utterance_factory import UtteranceFactory
from ..settings import listening
from .buffer_limits import WRITE_LIMIT_BYTES, limit_send_buffer
from .connection import SocketClosed
from .sessions import Sessions

REFUSAL_TIMEOUT_S = 5.0
"""Seconds in which a refused client must read why."""


class WyomingListener:
    """Serves Wyoming clients from `open` until `close`. `access` knows them by their address."""

    def __init__(
        self, factory: UtteranceFactory, access: AccessControl, sessions: Sessions, observer: Observer
    ) -> None:
        self._factory, self._access, self._sessions, self._observer = factory, access, sessions, observer
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int | None:
        """The TCP port in use; None while closed."""
        return None if self._server is None else self._server.sockets[0].getsockname()[1]

    async def open(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listens on `port`, shared with other processes if `reuse_port`. Raises SettingsError."""
        limit = self._factory.settings.max_message_bytes
        with listening("wyoming_port", host, port):
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=limit, reuse_port=reuse_port or None
            )

    def close(self) -> None:
        """Accepts no more connections. Safe without `open`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket = WyomingSocket(reader, writer, self._factory.settings.max_message_bytes)
        try:
            grant = self._access.authenticate(None, str((writer.get_extra_info("peername") or "?")[0]))
            grant.check(SPEAK)
            slot = self._sessions.reserve_slot(grant)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code, error.reached)
            with contextlib.suppress(SocketClosed):
                socket.send(encode_error(error))
            await socket.close_within(0, error.code, REFUSAL_TIMEOUT_S)
            return
        try:
            await self._sessions.run(socket, slot, Wyoming(self._factory.for_key(grant.key)))
        finally:
            slot.release()
            writer.close()


class WyomingSocket:
    """A `transport.connection.Socket` whose messages are Wyoming events.

    `max_bytes`: largest line, data and payload of an event; a client that exceeds it, or sends no events, is cut off.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int) -> None:
        self._reader = _BoundedReader(reader, max_bytes)
        self._writer = writer
        self.close_code: int | None = None
        limit_send_buffer(writer.transport)
        writer.transport.set_write_buffer_limits(WRITE_LIMIT_BYTES)

    async def receive(self) -> str | bytes:
        """As `Socket.receive`, but cancelling it may lose a part of an event; a connection does so at its end only."""
        with contextlib.suppress(OSError, EOFError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
            event = await async_read_event(cast(asyncio.StreamReader, self._reader))
            if event is not None and isinstance(event.type, str) and isinstance(event.data, dict):
                return encode_message(event)
        self._writer.close()
        raise SocketClosed

    def send(self, message: str | bytes) -> None:
        if self._writer.is_closing():
            raise SocketClosed
        self._writer.write(message.encode() if isinstance(message, str) else message)

    @property
    def blocked(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > WRITE_LIMIT_BYTES

    async def wait_writable(self) -> None:
        try:
            await self._writer.drain()
        except OSError:
            raise SocketClosed from None

    def probe(self, on_read: Callable[[], None]) -> None:
        """Calls `on_read` at once: the protocol has no confirmation but a write that completes."""
        on_read()

    async def close_within(self, code: int, reason: str, timeout_s: float) -> None:  # noqa: ARG002 - the interface's signature
        self.close_code = code
        self._writer.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self._writer.transport.abort()


class _BoundedReader:
    """What the library needs of a reader; refuses to read more at once than `max_bytes`."""

    def __init__(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        self._reader, self._max_bytes = reader, max_bytes

    async def readline(self) -> bytes:
        """Raises ValueError for a longer line: the limit of the reader."""
        return await self._reader.readline()

    async def readexactly(self, count: int) -> bytes:
        if count > self._max_bytes:
            raise ValueError(f"an event must have at most {self._max_bytes} bytes, got {count}")
        return await self._reader.readexactly(count)
