"""The gateway process: one port for sockets, pages and probes; up before its model, down after its speech."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.server import ServerProtocol

from ..pipeline.cloning.library import VoiceLibrary
from ..pipeline.speech import Synthesizer
from .access.configured import configured_access, configured_keys
from .admission import Admission
from .agent import Agent
from .audio import EncoderFactory
from .dialects.registry import DIALECTS, ENDPOINTS, http_routes
from .engine import EngineWatch
from .errors import Forbidden
from .handshake import Door, confirm_subprotocol
from .http.documents import Documents
from .http.doorstep import Doorstep
from .http.pages import page_routes
from .http.reply import refusal
from .http.service import CALLER, HttpService, Routes
from .http.speech import HttpSpeech
from .http.tokens import token_routes
from .http.voices import voice_routes
from .loop_lag import watch_lag
from .metrics import CONTENT_TYPE, Metrics
from .observer import Observer
from .opening import Offer
from .retirement import Retirement
from .sessions import Sessions
from .settings import Settings, SettingsError
from .small_reads import SmallReads
from .state import GatewayState, StepTimes
from .telemetry import Telemetry, UsageLog
from .tls import load_certificate, tls_context
from .websocket import CLOSE_S, WRITE_LIMIT_BYTES, BoundedConnection

_HANDSHAKE_S = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_S = 2.0
"""What is left at the very end gets so long to end properly."""

log = logging.getLogger(__name__)


class Gateway:
    """Serves from `open` until `close`; `drain` ends it gracefully. All in one event loop.

    `observers` are told what happens, beside the gateway's own metrics. With a `library`, voices can be made over HTTP.
    """

    def __init__(
        self,
        settings: Settings,
        synthesizer: Synthesizer,
        encoder_factory: EncoderFactory,
        observers: Sequence[Observer] = (),
        library: VoiceLibrary | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = Metrics(self._state, DIALECTS)
        self._observer = Telemetry((self._metrics, UsageLog(), *observers))
        self._watching: asyncio.Task[None] | None = None
        self._agent = Agent(self._state)
        self._synthesizer = synthesizer
        self._access = configured_access(settings)
        self._tls = tls_context(settings)
        self._offer = Offer(settings, synthesizer, encoder_factory)
        self._admission = Admission(self._slots, settings.queue_length, settings.queue_wait_ms, self._free_slots)
        self._retirement = Retirement(self._admission)
        self._engine = EngineWatch(synthesizer, on_ready=self._ready, on_look=self._admit_waiting)
        self._sessions = Sessions(self._offer, self._admission, self._retirement, self._observer)
        self._door = Door(self._access, self._offer, self._sessions, self._observer)
        self._server: Server
        documents = Documents(self._offer, self._admission, self._engine, self._sessions)
        sockets = [web.get(endpoint.pattern, _upgrade_required) for endpoint in ENDPOINTS]
        public = Routes([*documents.routes(), *sockets, *page_routes()])
        own = [*token_routes(self._access), web.get("/metrics", self._exposition)]
        if library is not None:
            own += voice_routes(library, self._access)
        keyed = [Routes(own), *http_routes(self._offer, HttpSpeech(self._sessions, self._observer))]
        self._http = HttpService(public, keyed, self._access, settings.sockets)

    @property
    def port(self) -> int:
        """The port in use."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def agent_port(self) -> int | None:
        """The port where balancers ask for room, if there is one."""
        return self._agent.port

    async def open(self) -> None:
        """Listen. Raises OSError when the address is taken."""
        settings = self._settings
        await self._http.open()
        self._server = await serve_websockets(
            self._converse,
            settings.host,
            settings.port,
            process_request=self._door.admit,
            process_response=confirm_subprotocol,
            create_connection=cast(type[ServerConnection], self._connection),
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
        if settings.agent_port is not None:
            await self._agent.open(settings.host, settings.agent_port)
        self._watching = asyncio.get_running_loop().create_task(watch_lag(self._metrics.lag), name="loop lag")
        log.info("listening on %s:%d", settings.host, self.port)

    def reload(self) -> None:
        """Read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        try:
            self._access.replace_keys(configured_keys(self._settings))
            if self._tls is not None:
                load_certificate(self._tls, self._settings)
        except SettingsError as error:
            log.error("not reloaded: %s", error)
        else:
            log.info("keys and certificate reloaded")

    async def keep_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self._sessions.drain(self._settings.drain_s)

    async def close(self) -> None:
        """Cut what is still open, and stop the engine."""
        self._sessions.shut()
        if self._watching is not None:
            self._watching.cancel()
        self._agent.close()
        self._server.close(code=1012, reason="shutting down")
        await self._http.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self._server.wait_closed()
        await self._retirement.finish(_LAST_S)
        await self._synthesizer.close()

    # Connections

    def _connection(self, protocol: ServerProtocol, server: Server, **options: Any) -> Doorstep:
        """What the listening socket gives a new connection to; the library's own comes after the doorstep."""
        websocket = BoundedConnection(protocol, server, **options)
        return Doorstep(lambda: SmallReads(websocket), self._http.connection, _HANDSHAKE_S)

    async def _converse(self, websocket: ServerConnection) -> None:
        assert isinstance(websocket, BoundedConnection)
        if await self._door.introduce(websocket):
            await self._sessions.run(websocket, websocket.caller, websocket.dialect)

    # Watching

    def _state(self) -> GatewayState:
        now_s = asyncio.get_running_loop().time()
        return GatewayState(
            sockets=dict.fromkeys(DIALECTS, 0) | Counter(session.dialect for session in self._sessions),
            sockets_limit=self._settings.sockets,
            slots=self._admission.slots,
            active=self._admission.active,
            queued=self._admission.queued,
            queue_limit=self._settings.queue_length,
            engine=self._synthesizer.state,
            draining=self._sessions.draining,
            leads_s=[lead_s for session in self._sessions for lead_s in session.leads_s(now_s)],
            steps=[
                StepTimes(part, step.batch, step.p50_s, step.p90_s, step.steps)
                for part, steps in self._synthesizer.step_times.items()
                for step in steps
            ],
        )

    async def _exposition(self, request: web.Request) -> web.Response:
        """Raises Forbidden: the metrics name every key."""
        if self._access.keyed and request[CALLER].name != self._settings.metrics_key:
            raise Forbidden(f"metrics are for the key named {self._settings.metrics_key!r}")
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    # Engine

    def _slots(self) -> int:
        limit = self._settings.active_utterances
        capacity = self._synthesizer.capacity
        return capacity if limit is None else min(limit, capacity)

    def _free_slots(self) -> float:
        """Without an engine nobody has to wait for a slot to be told so."""
        return self._synthesizer.free_slots if self._synthesizer.state.speaks else math.inf

    def _ready(self) -> None:
        voice = self._settings.voice
        if voice is not None and voice not in self._synthesizer.voices:
            raise SettingsError(f"voice {voice!r} is not one of {', '.join(self._synthesizer.voices)}")
        self._observer.engine_ready()
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """The engine may carry more than before."""
        self._admission.admit(asyncio.get_running_loop().time())


async def _upgrade_required(_: web.Request) -> web.Response:
    message = "speech goes over a WebSocket: send an upgrade"
    response = refusal(HTTPStatus.UPGRADE_REQUIRED, "upgrade_required", message).response()
    response.headers["Upgrade"] = "websocket"
    return response


async def serve(
    settings: Settings,
    synthesizer: Synthesizer,
    encoder_factory: EncoderFactory,
    on_listening: Callable[[int], None] | None = None,
    observers: Sequence[Observer] = (),
    library: VoiceLibrary | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal returns at once. SIGHUP reloads keys.

    `on_listening` gets the port as soon as it answers, before the model is loaded. Raises OSError when the
    address is taken, EngineError when the model cannot be loaded. Cancelling it closes everything without a
    drain.
    """
    gateway = Gateway(settings, synthesizer, encoder_factory, observers, library)
    await gateway.open()
    loop = asyncio.get_running_loop()
    stop, stop_now = asyncio.Event(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: (stop_now if stop.is_set() else stop).set())
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    engine = loop.create_task(gateway.keep_engine())
    try:
        if on_listening is not None:
            on_listening(gateway.port)
        if engine in await _first(engine, loop.create_task(stop.wait())):
            return engine.result()
        await _first(loop.create_task(gateway.drain()), loop.create_task(stop_now.wait()))
    finally:
        engine.cancel()
        await asyncio.wait([engine], timeout=_LAST_S)
        await gateway.close()
        for number in (*_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _first(*tasks: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    """Wait for the first to finish, cancel the others; returns those that finished."""
    try:
        return (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[0]
    finally:
        for task in tasks:
            task.cancel()
