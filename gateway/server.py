"""The gateway as one process: its port, and the voice model beside it; up before its model, down after its speech."""
# TODO-DOC A gateway's life from its first answer to its last, as signals tell it.

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.interface import Synthesizer

from .access.auth import access_from_settings
from .engine import EngineSupervisor
from .listener import GatewayListener
from .observability.events import CompositeObserver, Observer, UsageLog
from .observability.metrics import Metrics, watch_lag
from .observability.state import GatewayState
from .protocols.registry import PROTOCOL_NAMES
from .session.admission import AdmissionQueue, CapacityPolicy
from .session.outbox import EncoderFactory
from .session.utterance_factory import UtteranceFactory
from .settings import Settings
from .transport.haproxy_agent import HAProxyAgent


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
        self._metrics = Metrics(self._state, PROTOCOL_NAMES)
        self._observer = CompositeObserver((self._metrics, UsageLog(), *observers))
        self._watching: asyncio.Task[None] | None = None
        self._haproxy_agent = HAProxyAgent(self._state)
        self._synthesizer = synthesizer
        self._capacity = room = CapacityPolicy(settings, synthesizer)
        self._admission = AdmissionQueue(room.slots, settings.queue_length, settings.queue_wait_ms, room.free_slots)
        self._engine = EngineSupervisor(synthesizer, on_ready=self._ready, on_poll=self._admit_waiting)
        self._listener = GatewayListener(
            UtteranceFactory(settings, synthesizer, encoder_factory),
            self._admission,
            self._engine,
            access_from_settings(settings),
            self._observer,
            self._exposition,
            library,
        )
        self._sessions = self._listener.sessions

    @property
    def port(self) -> int:
        """The port in use."""
        return self._listener.port

    @property
    def haproxy_agent_port(self) -> int | None:
        """The port where balancers ask for room, if there is one."""
        return self._haproxy_agent.port

    async def open(self) -> None:
        """Listen. Raises OSError when the address is taken, SettingsError for a voice that the model has not."""
        settings = self._settings
        self._capacity.check_voices()
        await self._listener.open(settings.port)
        if settings.haproxy_agent_port is not None:
            await self._haproxy_agent.open(settings.host, settings.haproxy_agent_port)
        self._watching = asyncio.get_running_loop().create_task(watch_lag(self._metrics.observe_lag), name="loop lag")

    def reload(self) -> None:
        """Read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        self._listener.reload()

    async def run_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self._listener.drain(self._settings.shutdown_grace_s)

    async def close(self) -> None:
        """Cut what is still open, and stop the engine."""
        if self._watching is not None:
            self._watching.cancel()
        self._haproxy_agent.close()
        await self._listener.close()
        await self._synthesizer.close()

    # Watching

    def _state(self) -> GatewayState:
        now_s = asyncio.get_running_loop().time()
        return GatewayState.now(
            self._settings,
            self._admission,
            self._synthesizer,
            sockets=dict.fromkeys(PROTOCOL_NAMES, 0) | Counter(session.protocol_name for session in self._sessions),
            engine=self._synthesizer.state,
            draining=self._sessions.draining,
            leads_s=[lead_s for session in self._sessions for lead_s in session.leads_s(now_s)],
        )

    async def _exposition(self) -> bytes:
        return self._metrics.exposition()

    # Engine

    def _ready(self) -> None:
        self._observer.engine_ready()
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """The engine may carry more than before."""
        self._admission.admit(asyncio.get_running_loop().time())


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
    await serve_until_signal(Gateway(settings, synthesizer, encoder_factory, observers, library), on_listening)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LAST_S = 2.0
"""What is left at the very end gets so long to end properly."""


class GatewayServer(Protocol):
    """A gateway, of one process or of several."""

    @property
    def port(self) -> int:
        """The port in use."""

    @property
    def haproxy_agent_port(self) -> int | None:
        """The port of HAProxy's agent check, if there is one."""

    async def open(self) -> None:
        """Listen. Raises OSError when the address is taken."""

    def reload(self) -> None:
        """Read keys and certificate anew."""

    async def run_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""

    async def close(self) -> None:
        """Cut what is still open, and stop the engine."""


async def serve_until_signal(gateway: GatewayServer, on_listening: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal returns at once. SIGHUP reloads keys.

    Raises what `open` and `run_engine` do. Cancelling it closes everything without a drain.
    """
    loop = asyncio.get_running_loop()
    try:
        await gateway.open()
    except BaseException:
        await gateway.close()
        raise
    stop, stop_now = asyncio.Event(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: (stop_now if stop.is_set() else stop).set())
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    engine = loop.create_task(gateway.run_engine())
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
