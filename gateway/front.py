"""A gateway's side towards its clients: one port for sockets, pages and probes, and the sessions behind it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.server import ServerProtocol

from ..pipeline.cloning.library import VoiceLibrary
from .access.access import Access
from .access.configured import configured_keys
from .access.ledger import Ledger
from .admission import Gate
from .dialects.registry import ENDPOINTS, http_routes
from .engine import EngineNews
from .errors import Forbidden
from .handshake import Door, confirm_subprotocol
from .http.documents import Documents
from .http.doorstep import Doorstep
from .http.pages import page_routes
from .http.service import CALLER, HttpService, Routes
from .http.speech import HttpSpeech
from .http.tokens import token_routes
from .http.unread import UNREAD_S
from .http.upgrade import upgrade
from .http.voices import voice_routes
from .metrics import CONTENT_TYPE
from .observer import Observer
from .opening import Offer
from .patience import UNPACED_TIMES
from .retirement import Retirement
from .sessions import Sessions
from .settings import SettingsError
from .small_reads import SmallReads
from .tls import load_certificate, tls_context
from .unsent import WRITE_LIMIT_BYTES
from .websocket import CLOSE_S, BoundedConnection

_HANDSHAKE_S = 5.0
_LAST_S = 2.0
"""What is left at the very end gets so long to end properly."""

log = logging.getLogger(__name__)


class Front:
    """Serves from `open` until `close`. Who may speak when, and with what engine, it is told by `admission`, `engine`.

    `exposition`: the metrics' text, for those who may see them. With a `library`, voices can be made over HTTP.
    `ledger`: what is in use in all processes that listen on this port together.
    """

    def __init__(
        self,
        offer: Offer,
        admission: Gate,
        engine: EngineNews,
        access: Access,
        observer: Observer,
        exposition: Callable[[], Awaitable[bytes]],
        library: VoiceLibrary | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._settings = offer.settings
        self._access = access
        self._exposition = exposition
        self._tls = tls_context(self._settings)
        self._retirement = Retirement(admission)
        self.sessions = Sessions(offer, admission, self._retirement, observer, ledger)
        self._door = Door(access, offer, self.sessions, observer)
        self._server: Server | None = None
        documents = Documents(offer, admission, engine, self.sessions)
        sockets = [web.get(endpoint.pattern, upgrade) for endpoint in ENDPOINTS]
        public = Routes([*documents.routes(), *sockets, *page_routes()])
        own = [*token_routes(access), web.get("/metrics", self._metrics)]
        if library is not None:
            own += voice_routes(library, access)
        keyed = [Routes(own), *http_routes(offer, HttpSpeech(self.sessions, observer))]
        # Speech is for its session to give up, whose patience ends first.
        unread_s = max(UNREAD_S, 2 * UNPACED_TIMES * self._settings.stall_limit_ms / 1000)
        self._http = HttpService(public, keyed, access, self._settings.sockets, unread_s)

    @property
    def port(self) -> int:
        """The port in use."""
        assert self._server is not None, "it listens"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, port: int, *, beside: bool = False) -> None:
        """Listen; `beside` other processes, on the same port. Raises OSError when the address is taken."""
        settings = self._settings
        await self._http.open()
        self._server = await serve_websockets(
            self._converse,
            settings.host,
            port,
            process_request=self._door.admit,
            process_response=confirm_subprotocol,
            create_connection=cast(type[ServerConnection], self._connection),
            reuse_port=beside or None,
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
        self._reload("keys", lambda: self._access.replace_keys(configured_keys(self._settings)))
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
        self.sessions.shut()
        if self._server is not None:
            self._server.close(code=1012, reason="shutting down")
        await self._http.close()
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await self._server.wait_closed()
        await self._retirement.finish(_LAST_S)

    def _connection(self, protocol: ServerProtocol, server: Server, **options: Any) -> Doorstep:
        """What the listening socket gives a new connection to; the library's own comes after the doorstep."""
        websocket = BoundedConnection(protocol, server, **options)

        def taker() -> SmallReads:
            return SmallReads(websocket)

        return Doorstep(taker, lambda: self._http.connection(taker), _HANDSHAKE_S)

    async def _converse(self, websocket: ServerConnection) -> None:
        assert isinstance(websocket, BoundedConnection)
        if await self._door.introduce(websocket):
            assert websocket.place is not None, "it was introduced"
            await self.sessions.run(websocket, websocket.place, websocket.dialect)

    async def _metrics(self, request: web.Request) -> web.Response:
        """Raises Forbidden: the metrics name every key."""
        if self._access.keyed and request[CALLER].name != self._settings.metrics_key:
            raise Forbidden(f"metrics are for the key named {self._settings.metrics_key!r}")
        return web.Response(body=await self._exposition(), headers={"Content-Type": CONTENT_TYPE})
