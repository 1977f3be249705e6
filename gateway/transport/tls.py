"""TLS: the certificate, and connections that count from their accept on.

`create_server(ssl=...)` of the event loops reports a connection only after its handshake, so that silent connections
would be neither limited nor evicted, and many handshakes would run in one turn of the event loop. Here a connection is
accepted as a plain one: it has its place in the pool at once, TLS begins with its first byte (`loop.start_tls`), and
what the client sends goes to TLS through a `ReadSizeLimit`:

    transport ── TlsReadLimit ── SSLProtocol of the loop ── TlsAcceptor, after the handshake the protocol of `serve`
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from ..settings import Settings, SettingsError
from .buffer_limits import ReadSizeLimit
from .connection_pool import ConnectionPlace, ConnectionPool
from .turn_budget import TURN_BYTES, TurnBudget

HANDSHAKE_BYTES = TURN_BYTES
"""What each read during a handshake counts in the budget of a turn: one of them may contain the signature, which takes
5 ms with a 4096-bit RSA key, 1 ms with a 2048-bit one, and 0.3 ms with an elliptic curve."""
READ_BYTES = 1024
"""Bytes of TLS read in one callback: at most 46 records of one byte, which take 0.15 ms to decrypt."""
BYTES_PER_BUDGET_BYTE = 8
"""Bytes of TLS after the handshake that count as one in the budget: decrypting is so much cheaper than parsing."""
UNREAD_BYTES = 1
"""Bytes of TLS that wait to be decrypted from which nothing more is read: one read, further ones stay in the kernel.

They are decrypted in one callback as soon as the connection reads again, which the budget does not delay: with 32 KiB
each, eight sockets whose messages are handled in the same turn made it 11 ms long."""
CLOSE_TIMEOUT_S = 1.0
"""Seconds in which the client must end the TLS connection when the gateway has closed it."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Returns a server context for TLS 1.2 and later; None when no certificate is set. Raises SettingsError."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Loads certificate and key into `context` for future handshakes.

    Raises SettingsError when they cannot be used; then `context` is unchanged.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    assert certificate is not None, "TLS is on"
    try:
        # First into a context of its own: a failed load leaves a context with a certificate and no matching key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_refuse_password)
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except FileNotFoundError:
        missing = certificate if key is None or not certificate.exists() else key
        raise SettingsError(f"tls_certificate, tls_key: {missing} does not exist") from None
    except (OSError, ValueError) as refused:  # ssl.SSLError is an OSError
        reason = getattr(refused, "reason", None) or refused
        raise SettingsError(f"tls_certificate, tls_key: {certificate} cannot be used: {reason}") from None


def _refuse_password() -> str:
    """Called for an encrypted key. Without it OpenSSL would prompt on the terminal and wait."""
    raise ValueError("the key must not be encrypted")


class TlsAcceptor(asyncio.Protocol):
    """Accepts one connection with TLS; after the handshake, the protocol that `serve` makes takes it over.

    The connection has a place in `pool` from its accept on. It is given back when the handshake fails or does not end
    before the place's deadline; afterwards `serve`'s protocol gives it back.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        pool: ConnectionPool,
        budget: TurnBudget,
        serve: Callable[[ConnectionPlace], asyncio.Protocol],
    ) -> None:
        self._context, self._pool, self._budget, self._serve = context, pool, budget, serve
        self._handshake: asyncio.Task[None] | None = None
        self._limit: TlsReadLimit | None = None
        self._early = b""
        """Decrypted data that arrived before `serve`'s protocol could take over."""
        self._transport: asyncio.Transport
        self._place: ConnectionPlace

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._place = self._pool.add(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._early += data
            return
        self._transport.pause_reading()
        loop = asyncio.get_running_loop()
        self._handshake = loop.create_task(self._shake_hands())
        loop.call_soon(self._limit_reads, data)  # after the first step of the task, before TLS resumes reading

    def connection_lost(self, _: Exception | None) -> None:
        self._place.release()

    async def _shake_hands(self) -> None:
        transport = await self._start_tls()
        if transport is None or transport.is_closing() or self._place.released:
            # `start_tls` also returns when the deadline or another connection aborted this one.
            self._place.release()
            return
        assert self._limit is not None, "the handshake has read"
        self._limit.handshaking = False
        self._place.secure(transport)
        transport.set_read_buffer_limits(UNREAD_BYTES)  # type: ignore[attr-defined]  # of TLS transports only
        server = self._serve(self._place)
        transport.set_protocol(server)
        server.connection_made(transport)
        if self._early:
            server.data_received(self._early)

    async def _start_tls(self) -> asyncio.Transport | None:
        """Returns the transport of decrypted data; None when the handshake failed or the connection was lost."""
        if self._transport.is_closing():
            return None
        try:
            return await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                # The deadline of the place is earlier; this one ends with the connection.
                ssl_handshake_timeout=self._pool.deadline_s,
                ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
            )
        except OSError:  # of TLS, or of the connection; both close it
            return None

    def _limit_reads(self, first: bytes) -> None:
        """Puts the limit between the transport and TLS, and passes on what was read before."""
        assert self._handshake is not None
        if self._handshake.done():
            return
        tls = cast(asyncio.BufferedProtocol, self._transport.get_protocol())
        self._limit = TlsReadLimit(tls, self._transport, self._budget, self._place)
        self._transport.set_protocol(self._limit)
        asyncio.get_running_loop().call_soon(self._pass_on, self._limit, first)  # after TLS's connection_made

    def _pass_on(self, limit: TlsReadLimit, first: bytes) -> None:
        if not self._transport.is_closing():
            limit.receive(first)


class TlsReadLimit(ReadSizeLimit):
    """Passes what a client sends on to TLS, and counts it in the budget: a handshake more than other records."""

    def __init__(
        self,
        tls: asyncio.BufferedProtocol,
        transport: asyncio.Transport,
        budget: TurnBudget,
        place: ConnectionPlace,
    ) -> None:
        super().__init__(cast(asyncio.Protocol, tls), budget, lambda: place.caller, READ_BYTES)
        self._tls = tls
        self._transport = transport
        self.handshaking = True

    def cost(self, nbytes: int) -> int:
        return HANDSHAKE_BYTES if self.handshaking else 1 + nbytes // BYTES_PER_BUDGET_BYTE

    def data_received(self, data: bytes) -> None:
        while data:
            buffer = memoryview(self._tls.get_buffer(len(data)))
            size = min(len(data), len(buffer))
            buffer[:size] = data[:size]
            self._tls.buffer_updated(size)
            data = data[size:]
