"""TLS clients that send what they have to say in pieces of their own choice, or something else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from fakes.waiting import DEADLINE_S


def client_context() -> ssl.SSLContext:
    """A context that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class RawTls:
    """One connection; `connect` opens it. Nothing is sent without `write`."""

    def __init__(self) -> None:
        self._received, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._received, self._outgoing)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, port: int) -> RawTls:
        """Raises OSError."""
        client = cls()
        client._reader, client._writer = await asyncio.open_connection("127.0.0.1", port)
        return client

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Waits until the kernel has nearly all that was written. Raises ConnectionError."""
        await self._writer.drain()

    def hello(self) -> bytes:
        """The client's first flight."""
        return self._flight(self._tls.do_handshake)

    async def finish(self) -> bytes:
        """Waits for the gateway's flight; returns the client's second one, which ends its handshake.

        Raises ConnectionError, TimeoutError.
        """
        while True:
            await self._receive()
            if flight := self._flight(self._tls.do_handshake):
                return flight

    def records(self, data: bytes, size: int) -> bytes:
        """`data` in records of `size` bytes each."""
        for at in range(0, len(data), size):
            self._tls.write(data[at : at + size])
        return self._outgoing.read()

    async def read(self) -> bytes:
        """Some decrypted data. Raises ConnectionError, TimeoutError."""
        while True:
            try:
                return self._tls.read(65_536)
            except ssl.SSLWantReadError:
                await self._receive()

    async def until_closed(self) -> None:
        """Waits until the gateway closes the connection. Raises TimeoutError."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                while await self._reader.read(65_536):
                    pass

    def end(self) -> None:
        """Closes the client's half of the connection."""
        self._writer.write_eof()

    def abort(self) -> None:
        """Resets the connection."""
        self._writer.transport.abort()

    async def _receive(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            data = await self._reader.read(65_536)
        if not data:
            raise ConnectionResetError("the gateway closed the connection")
        self._received.write(data)

    def _flight(self, step: Callable[[], None]) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            step()
        return self._outgoing.read()
