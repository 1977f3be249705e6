"""A gateway's side towards its clients: one port for sockets, pages and probes, and the sessions behind it."""
# TODO-DOC TLS from a certificate chain and its key; both can be read anew while the gateway runs.

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from voxgate.pipeline.cloning.library import VoiceLibrary
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.server import ServerProtocol

from .access.auth import AccessControl, keys_from_settings
from .access.usage import SharedUsage
from .engine import EngineStatus
from .errors import Forbidden
from .http.application import CALLER, HttpApplication, RouteGroup
from .http.connection import WRITE_TIMEOUT_S, upgrade
from .http.routes import StatusRoutes, page_routes, token_routes
from .http.sniffer import ProtocolSniffer
from .http.streaming import HttpSpeech
from .http.voices import voice_routes
from .observability.events import Observer
from .observability.metrics import CONTENT_TYPE
from .protocols.registry import WEBSOCKET_ENDPOINTS, http_routes
from .session.admission import Admission
from .session.timers import UNPACED_TIMEOUT_FACTOR
from .session.utterance_factory import UtteranceFactory
from .settings import Settings, SettingsError
from .transport.buffer_limits import WRITE_LIMIT_BYTES, ReadSizeLimit
from .transport.connection import SpeechCloser
from .transport.handshake import HandshakeAuthenticator, confirm_subprotocol
from .transport.sessions import Sessions
from .transport.websocket import CLOSE_S, BoundedConnection

_HANDSHAKE_S = 5.0
_LAST_S = 2.0
"""What is left at the very end gets so long to end properly."""

log = logging.getLogger(__name__)


class GatewayListener:
    """Serves from `open` until `close`. Who may speak when, and with what engine, it is told by `admission`, `engine`.

    `exposition`: the metrics' text, for those who may see them. With a `library`, voices can be made over HTTP.
    `shared_usage`: what is in use in all processes that listen on this port together.
    """

    def __init__(
        self,
        factory: UtteranceFactory,
        admission: Admission,
        engine: EngineStatus,
        access: AccessControl,
        observer: Observer,
        exposition: Callable[[], Awaitable[bytes]],
        library: VoiceLibrary | None = None,
        shared_usage: SharedUsage | None = None,
    ) -> None:
        self._settings = factory.settings
        self._access = access
        self._exposition = exposition
        self._tls = tls_context(self._settings)
        self._speech_closer = SpeechCloser(admission)
        self.sessions = Sessions(factory, admission, self._speech_closer, observer, shared_usage)
        self._authenticator = HandshakeAuthenticator(access, factory, self.sessions, observer)
        self._server: Server | None = None
        documents = StatusRoutes(factory, admission, engine, self.sessions)
        sockets = [web.get(endpoint.pattern, upgrade) for endpoint in WEBSOCKET_ENDPOINTS]
        public = RouteGroup([*documents.routes(), *sockets, *page_routes()])
        own = [*token_routes(access), web.get("/metrics", self._metrics)]
        if library is not None:
            own += voice_routes(library, access)
        keyed = [RouteGroup(own), *http_routes(factory, HttpSpeech(self.sessions, observer))]
        # Speech is for its session to give up, whose patience ends first.
        write_timeout_s = max(
            WRITE_TIMEOUT_S, 2 * UNPACED_TIMEOUT_FACTOR * self._settings.slow_consumer_timeout_ms / 1000
        )
        self._http = HttpApplication(public, keyed, access, self._settings.sockets, write_timeout_s)

    @property
    def port(self) -> int:
        """The port in use."""
        assert self._server is not None, "it listens"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, port: int, *, reuse_port: bool = False) -> None:
        """Listen; `reuse_port` other processes, on the same port. Raises OSError when the address is taken."""
        settings = self._settings
        await self._http.open()
        self._server = await serve_websockets(
            self._converse,
            settings.host,
            port,
            process_request=self._authenticator.admit,
            process_response=confirm_subprotocol,
            create_connection=cast(type[ServerConnection], self._connection),
            reuse_port=reuse_port or None,
            ssl=self._tls,
            compression=None,
            server_header=None,
            open_timeout=_HANDSHAKE_S,
            ping_interval=settings.ping_interval_s,
            ping_timeout=settings.ping_timeout_s,
            close_timeout=CLOSE_S,
            max_size=settings.max_message_bytes,
            max_queue=8,
            write_limit=WRITE_LIMIT_BYTES,
            backlog=1024,
        )
        log.info("listening on %s:%d", settings.host, self.port)

    def reload(self) -> None:
        """Read keys and certificate anew, each for itself; what cannot be used is logged, and the old ones stay."""
        self._reload("keys", lambda: self._access.replace_keys(keys_from_settings(self._settings)))
        if (tls := self._tls) is not None:
            self._reload("certificate", lambda: load_certificate(tls, self._settings))

    def _reload(self, what: str, load: Callable[[], None]) -> None:
        try:
            load()
        except SettingsError as error:
            log.error("%s not reloaded: %s", what, error)
        else:
            log.info("%s reloaded", what)

    async def drain(self, deadline_s: float) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self.sessions.drain(deadline_s)

    async def close(self) -> None:
        """Cut what is still open."""
        self.sessions.stop_accepting()
        if self._server is not None:
            self._server.close(code=1012, reason="shutting down")
        await self._http.close()
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await self._server.wait_closed()
        await self._speech_closer.finish(_LAST_S)

    def _connection(self, protocol: ServerProtocol, server: Server, **options: Any) -> ProtocolSniffer:
        """What the listening socket gives a new connection to; the library's own comes after the doorstep."""
        websocket = BoundedConnection(protocol, server, **options)

        def taker() -> ReadSizeLimit:
            return ReadSizeLimit(websocket)

        return ProtocolSniffer(taker, lambda: self._http.connection(taker), _HANDSHAKE_S)

    async def _converse(self, websocket: ServerConnection) -> None:
        assert isinstance(websocket, BoundedConnection)
        if await self._authenticator.authenticate(websocket):
            assert websocket.slot is not None, "it was introduced"
            await self.sessions.run(websocket, websocket.slot, websocket.wire_protocol)

    async def _metrics(self, request: web.Request) -> web.Response:
        """Raises Forbidden: the metrics name every key."""
        if self._access.requires_key and request[CALLER].name != self._settings.metrics_key:
            raise Forbidden(f"metrics are for the key named {self._settings.metrics_key!r}")
        return web.Response(body=await self._exposition(), headers={"Content-Type": CONTENT_TYPE})


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """A server context for TLS 1.2 and later; None when TLS is off. Raises SettingsError."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Handshakes from now on use the files as they are. Raises SettingsError; then nothing has changed."""
    certificate, key = settings.tls_certificate, settings.tls_key
    assert certificate is not None, "TLS is on"
    try:
        # Into a context of its own first: one that failed half way would be left with a key that does not fit.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
        context.load_cert_chain(certificate, key, password=_no_password)
    except FileNotFoundError:
        missing = certificate if key is None or not certificate.exists() else key
        raise SettingsError(f"tls_certificate, tls_key: {missing} is not there") from None
    except (OSError, ValueError) as refused:  # ssl.SSLError is an OSError
        reason = getattr(refused, "reason", None) or refused
        raise SettingsError(f"tls_certificate, tls_key: {certificate} cannot be used: {reason}") from None


def _no_password() -> str:
    """Asked for when the key is encrypted; without it OpenSSL would ask on the terminal and wait."""
    raise ValueError("the key is encrypted")
