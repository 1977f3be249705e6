"""Listens on the gateway's port: WebSockets and plain HTTP on one socket, TLS, reload, drain, close."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.errors import AtCapacity
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.server import ServerProtocol

from .access.auth import AccessControl, keys_from_settings
from .access.rights import ISSUE_TOKENS, MANAGE_VOICES, PUBLIC, READ_METRICS
from .access.usage import SharedUsage
from .engine import EngineStatus
from .errors import Limit
from .http.application import HttpApplication, RouteGroup, max_body_bytes
from .http.cartesia_dictionaries import cartesia_dictionary_routes
from .http.connection import WRITE_TIMEOUT_S
from .http.elevenlabs_dictionaries import elevenlabs_dictionary_routes
from .http.routes import (
    document_routes,
    limits_route,
    metrics_route,
    page_routes,
    probe_routes,
    token_routes,
    upgrade_routes,
)
from .http.sniffer import ProtocolSniffer
from .http.streaming import SpeechRoutes
from .http.voices import voice_routes
from .messages.connection import CloseCode
from .observability.events import Observer
from .protocols.registry import DOCUMENT_ENDPOINTS, SPEECH_ENDPOINTS, WEBSOCKET_ENDPOINTS
from .session.admission import Admission
from .session.checkpoints.trail import Checkpoints
from .session.timers import UNPACED_TIMEOUT_FACTOR
from .session.utterance_factory import UtteranceFactory
from .settings import SettingsError
from .shutdown import FINAL_GRACE_S
from .transport.buffer_limits import WRITE_LIMIT_BYTES, ReadSizeLimit
from .transport.connection import SpeechCloser
from .transport.connection_pool import ConnectionPlace, ConnectionPool
from .transport.handshake import HandshakeAuthenticator, complete_response
from .transport.sessions import Sessions
from .transport.tls import TlsAcceptor, load_certificate, tls_context
from .transport.turn_budget import TURN_BYTES, TurnBudget
from .transport.websocket import CLOSE_TIMEOUT_S, BoundedConnection
from .transport.wyoming_listener import WyomingListener

HANDSHAKE_TIMEOUT_S = 5.0
"""Seconds each for the TLS handshake, the head of the first request, and the WebSocket handshake."""
MAX_QUEUED_MESSAGES = 8
"""Received messages that the websockets library holds for a session before it stops reading the socket."""
FRAMES_PER_MESSAGE = 2
"""Rate of frames, of any kind, per allowed message: fragments and pongs are frames too."""
EXPIRY_CHECK_S = 1.0
"""Time between two looks for open sockets whose key or token has expired; each takes about 1 µs per socket."""
CONNECTIONS_PER_SOCKET = 2
"""Connections per allowed socket: as many requests over plain HTTP may be answered as there are sockets."""
BACKLOG = 1024
"""Connections that the kernel holds until they are accepted: all clients of a lost replica may connect at once."""

log = logging.getLogger(__name__)


def reload_each(loads: Mapping[str, Callable[[], object]]) -> tuple[str, ...]:
    """Calls all functions, and logs SettingsErrors; returns the names of the others."""
    reloaded = []
    for name, load in loads.items():
        try:
            load()
        except SettingsError as error:
            log.error("%s not reloaded: %s", name, error)
        else:
            reloaded.append(name)
            log.info("%s reloaded", name)
    return tuple(reloaded)


class GatewayListener:
    """Serves clients on one port from `open` until `close`.

    `admission` grants talker slots, `engine` says whether speech can be started, `exposition` returns the text of
    /metrics, which is 404 without it. With a `library`, voices can be made over HTTP. `shared_usage` counts sockets
    over all processes that listen on the same port.
    """

    def __init__(
        self,
        factory: UtteranceFactory,
        admission: Admission,
        engine: EngineStatus,
        access: AccessControl,
        observer: Observer,
        exposition: Callable[[], Awaitable[bytes]] | None,
        library: VoiceLibrary | None = None,
        shared_usage: SharedUsage | None = None,
    ) -> None:
        """Raises SettingsError when the TLS certificate cannot be used."""
        self._settings = factory.settings
        if self._settings.checkpoints:
            checkpoints = Checkpoints(access.checkpoint_key, factory.synthesizer.identity)
            factory = replace(factory, checkpoints=checkpoints)
        self._access = access
        self._tls = tls_context(self._settings)
        self._speech_closer = SpeechCloser(admission)
        self._factory = factory
        self.sessions = Sessions(factory, admission, self._speech_closer, observer, shared_usage)
        self._authenticator = HandshakeAuthenticator(WEBSOCKET_ENDPOINTS, access, factory, self.sessions, observer)
        self._server: Server | None = None
        self._expiry_task: asyncio.Task[None] | None = None
        self._read_budget = TurnBudget(TURN_BYTES)
        probes = probe_routes(engine, lambda: self.sessions.draining)
        dictionaries, caller_share = factory.pronunciations.store, self._settings.caller_share
        groups = [
            RouteGroup(PUBLIC, [*probes, *upgrade_routes(WEBSOCKET_ENDPOINTS), *page_routes()], any_host=True),
            RouteGroup(PUBLIC, [limits_route(factory, admission, engine, self.sessions)]),
            RouteGroup(ISSUE_TOKENS, token_routes(access)),
            RouteGroup(READ_METRICS, [] if exposition is None else [metrics_route(exposition)]),
            RouteGroup(
                MANAGE_VOICES, [] if library is None else voice_routes(library, self._settings.caller_share, observer)
            ),
            *([] if dictionaries is None else elevenlabs_dictionary_routes(dictionaries)),
            *([] if dictionaries is None else cartesia_dictionary_routes(dictionaries)),
            *document_routes(DOCUMENT_ENDPOINTS, factory),
            *SpeechRoutes(factory, self.sessions, observer).groups(SPEECH_ENDPOINTS),
        ]
        self.wyoming = WyomingListener(factory, access, self.sessions, observer)
        # The session's slow-consumer timeout, which reports an error, must end before the connection's write timeout.
        self._write_timeout_s = max(
            WRITE_TIMEOUT_S, 2 * UNPACED_TIMEOUT_FACTOR * self._settings.slow_consumer_timeout_ms / 1000
        )
        body_bytes = max_body_bytes(self._settings.max_characters)
        self._http = HttpApplication(groups, access, body_bytes, self._write_timeout_s)
        self._pool = ConnectionPool(
            CONNECTIONS_PER_SOCKET * self._settings.sockets,
            HANDSHAKE_TIMEOUT_S,
            caller_share,
            access.proxies.trusts,
            lambda: observer.handshake_refused(AtCapacity.code, Limit.CONNECTIONS),
        )

    @property
    def port(self) -> int:
        """The TCP port in use."""
        assert self._server is not None, "open was called"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, port: int, *, reuse_port: bool = False) -> None:
        """Listens on `port`, shared with other processes if `reuse_port`. Raises OSError when the address is in use."""
        settings = self._settings
        self._factory.rehearse()
        await self._http.open()
        self._server = await serve_websockets(
            self._serve_connection,
            settings.host,
            port,
            process_request=self._authenticator.process_request,
            process_response=complete_response,
            create_connection=cast(type[ServerConnection], self._create_connection),
            reuse_port=reuse_port or None,
            compression=None,
            server_header=None,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            ping_interval=settings.ping_interval_s,
            ping_timeout=settings.ping_timeout_s,
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=settings.max_message_bytes,
            max_queue=MAX_QUEUED_MESSAGES,
            write_limit=WRITE_LIMIT_BYTES,
            backlog=BACKLOG,
        )
        if settings.wyoming_port is not None:
            await self.wyoming.open(settings.host, settings.wyoming_port, reuse_port=reuse_port)
            log.info("listening for Wyoming clients on %s:%s", settings.host, self.wyoming.port)
        self._expiry_task = asyncio.create_task(self._end_expired(), name="expiry")
        log.info("listening on %s:%d", settings.host, self.port)

    def reload(self, kinds: Container[str] = ("keys", "certificate")) -> None:
        """Reads files of these kinds again. Logs what cannot be used and keeps the previous ones."""
        loads: dict[str, Callable[[], object]] = {"keys": self._reload_keys}
        if self._tls is not None:
            loads["certificate"] = partial(load_certificate, self._tls, self._settings)
        reload_each({kind: load for kind, load in loads.items() if kind in kinds})

    def _reload_keys(self) -> None:
        self._access.replace_keys(keys_from_settings(self._settings))
        if closed := self.sessions.close_revoked(self._access.is_revoked):
            log.info("closed %d sockets of removed or changed keys", closed)

    async def _end_expired(self) -> None:
        """Ends the sockets of expired keys and tokens; never returns."""
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            self.sessions.end_expired(self._access.has_expired, self._settings.shutdown_grace_s)

    async def drain(self, grace_s: float) -> None:
        """Refuses new utterances, lets active ones finish for `grace_s`, then closes the sockets that are left."""
        await self.sessions.drain(grace_s)

    async def close(self) -> None:
        """Closes what is still open; takes at most `FINAL_GRACE_S` each for sockets and for speeches."""
        self.sessions.stop_accepting()
        self.sessions.stop_waiting()
        self.wyoming.close()
        if self._expiry_task is not None:
            self._expiry_task.cancel()
        if self._server is not None:
            self._server.close(code=CloseCode.RESTARTING, reason="shutting down")
        await self._http.close()
        self._pool.close_idle()
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINAL_GRACE_S):
                    await self._server.wait_closed()
        await self._speech_closer.finish(FINAL_GRACE_S)

    def _create_connection(self, protocol: ServerProtocol, server: Server, **options: Any) -> asyncio.Protocol:
        """Returns the asyncio protocol of a new connection.

        The sniffer reads the head of the first request, after the TLS handshake where there is one, and hands the
        connection to the websockets library or to HTTP.
        """

        def make_websocket(place: ConnectionPlace) -> ReadSizeLimit:
            place.serve()
            websocket = BoundedConnection(
                protocol,
                server,
                place=place,
                budget=self.sessions.steps,
                write_timeout_s=self._write_timeout_s,
                frames_per_s=FRAMES_PER_MESSAGE * self._settings.messages_per_s,
                **options,
            )
            return ReadSizeLimit(websocket, self._read_budget, lambda: websocket.caller_name)

        def make_http(place: ConnectionPlace) -> asyncio.Protocol:
            return self._http.connection(place, make_websocket)

        def make_sniffer(place: ConnectionPlace | None = None) -> ProtocolSniffer:
            return ProtocolSniffer(self._pool, make_websocket, make_http, self._read_budget, place)

        if self._tls is None:
            return make_sniffer()
        return TlsAcceptor(self._tls, self._pool, self._read_budget, make_sniffer)

    async def _serve_connection(self, websocket: ServerConnection) -> None:
        assert isinstance(websocket, BoundedConnection)
        if not await self._authenticator.authenticate(websocket):
            return
        if websocket.resumed is not None:
            await websocket.resumed.serve(websocket)
        else:
            assert websocket.slot is not None, "authenticate reserved it"
            await self.sessions.run(websocket, websocket.slot, websocket.wire_protocol)
