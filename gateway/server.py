"""The gateway as one process, and its life from the first signal handler to the last.

`Gateway` holds everything: listener, admission, engine supervisor, metrics. It answers probes and accepts sockets
before the model is loaded. `serve_until_signal` runs a gateway, of one process or of several, until a signal ends it:

1. `open`: listen.
2. `run_engine`: load the model, restart it after a loss, also while the shutdown is under way.
3. first SIGTERM or SIGINT, `drain`: refuse new utterances, finish active ones within `Settings.shutdown_grace_s`.
4. second signal, or end of the drain, `close`: cut the rest, stop the engine.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.interface import Synthesizer

from .access.auth import access_from_settings
from .engine import EngineSupervisor
from .http.admin import AdminListener
from .listener import GatewayListener
from .observability.events import CompositeObserver, Observer, UsageLog
from .observability.exposition import CachedExposition
from .observability.metrics import Metrics, watch_lag
from .observability.state import GatewayState
from .protocols.registry import PROTOCOL_NAMES
from .session.admission import AdmissionQueue, CapacityPolicy
from .session.lookup.pronunciations import Pronunciations
from .session.outbox import EncoderFactory
from .session.utterance_factory import UtteranceFactory, check_configured_voices
from .settings import Settings
from .shutdown import FINAL_GRACE_S, run_until_first
from .transport.haproxy_agent import HAProxyAgent

log = logging.getLogger(__name__)


class GatewayServer(Protocol):
    """A gateway of one process (`Gateway`) or of several (`workers.speech_process.SpeechProcess`)."""

    @property
    def port(self) -> int:
        """The TCP port in use."""

    @property
    def haproxy_agent_port(self) -> int | None:
        """The TCP port of the HAProxy agent; None without one."""

    @property
    def admin_port(self) -> int | None:
        """The TCP port of probes and metrics; None without one."""

    async def open(self) -> None:
        """Listens. Raises OSError when the address is in use, SettingsError for other ports and an unknown voice."""

    def reload(self) -> None:
        """Reads keys and certificate again. Logs what cannot be used and keeps the previous ones."""

    async def run_engine(self) -> None:
        """Loads the model and restarts it after losses; never returns. Raises EngineError when it cannot be loaded."""

    async def drain(self) -> None:
        """Refuses new utterances, lets active ones finish until the deadline, then closes the sockets that are left."""

    async def close(self) -> None:
        """Closes what is still open, and stops the engine. Safe without `open`."""


class Gateway:
    """A gateway in one process and one event loop.

    `observers` receive events in addition to the gateway's metrics and usage log. With a `library`, voices can be made
    over HTTP.
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
        self._synthesizer = synthesizer
        self._factory = UtteranceFactory(
            settings, synthesizer, encoder_factory, pronunciations=Pronunciations.from_settings(settings)
        )
        self._metrics = Metrics(self._state, PROTOCOL_NAMES)
        self._observer = CompositeObserver((self._metrics, UsageLog(), *observers))
        self._lag_task: asyncio.Task[None] | None = None
        self._haproxy_agent = HAProxyAgent(self._state)
        capacity = CapacityPolicy(settings, synthesizer)
        self._admission = AdmissionQueue(
            capacity.slots,
            settings.queue_length,
            settings.queue_wait_ms,
            capacity.free_slots,
            settings.caller_share,
        )
        self._engine = EngineSupervisor(synthesizer, on_ready=self._on_engine_ready, on_poll=self._admit_waiting)
        access = access_from_settings(settings)
        exposition = CachedExposition(self._make_exposition)
        self._listener = GatewayListener(
            self._factory,
            self._admission,
            self._engine,
            access,
            self._observer,
            exposition if settings.admin_port is None else None,
            library,
        )
        self._sessions = self._listener.sessions
        self._admin = AdminListener(self._engine, lambda: self._sessions.draining, exposition, access)

    @property
    def port(self) -> int:
        """The TCP port in use."""
        return self._listener.port

    @property
    def haproxy_agent_port(self) -> int | None:
        """The TCP port of the HAProxy agent; None without one."""
        return self._haproxy_agent.port

    @property
    def admin_port(self) -> int | None:
        """The TCP port of probes and metrics; None without one."""
        return self._admin.port

    async def open(self) -> None:
        """Listens. Raises OSError when the address is in use, SettingsError for other ports and an unknown voice."""
        settings = self._settings
        check_configured_voices(settings, self._synthesizer.voices)
        if settings.admin_port is not None:
            await self._admin.open(settings.admin_host, settings.admin_port)
        if settings.haproxy_agent_port is not None:
            await self._haproxy_agent.open(settings.host, settings.haproxy_agent_port)
        await self._listener.open(settings.port)
        self._lag_task = asyncio.get_running_loop().create_task(watch_lag(self._metrics.observe_lag), name="loop lag")

    def reload(self) -> None:
        """Reads keys and certificate again. Logs what cannot be used and keeps the previous ones."""
        self._listener.reload()

    async def run_engine(self) -> None:
        """Loads the model and restarts it after losses; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Refuses new utterances, lets active ones finish until the deadline, then closes the sockets that are left."""
        await self._listener.drain(self._settings.shutdown_grace_s)

    async def close(self) -> None:
        """Closes what is still open, and stops the engine. Safe without `open`."""
        if self._lag_task is not None:
            self._lag_task.cancel()
        self._haproxy_agent.close()
        await self._listener.close()
        await self._admin.close()
        await self._synthesizer.close()

    def _state(self) -> GatewayState:
        return GatewayState.now(
            self._settings,
            self._admission,
            self._synthesizer,
            sockets=dict.fromkeys(PROTOCOL_NAMES, 0) | self._sessions.count_by_protocol(),
            engine=self._synthesizer.state,
            draining=self._sessions.draining,
            leads_s=self._sessions.leads_s(),
        )

    async def _make_exposition(self) -> bytes:
        self._metrics.update_state()
        return await asyncio.to_thread(self._metrics.exposition)

    def _on_engine_ready(self) -> None:
        self._observer.engine_ready()
        self._admission.renew(asyncio.get_running_loop().time())

    def _admit_waiting(self) -> None:
        """Admits queued utterances: the engine's capacity may have grown."""
        self._admission.admit(asyncio.get_running_loop().time())


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve_until_signal(gateway: GatewayServer, on_listening: Callable[[int], None] | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains and returns; a second signal returns at once. SIGHUP reloads keys.

    Calls `on_listening` with the port as soon as the gateway answers, before the model is loaded. Raises what
    `gateway.open` and `gateway.run_engine` raise. Cancelling it closes the gateway without a drain.
    """
    loop = asyncio.get_running_loop()
    with _Signals(gateway) as signals:
        try:
            opened = await _open(gateway, signals.stop)
        except BaseException:
            await gateway.close()
            raise
        if not opened:
            await gateway.close()
            return
        signals.opened()
        engine = loop.create_task(gateway.run_engine())
        try:
            if on_listening is not None:
                on_listening(gateway.port)
            await run_until_first(asyncio.wait([engine]), signals.stop.wait())
            if engine.done():
                engine.result()
                return
            # The engine is supervised during the drain as well: clients have to hear of its loss.
            await run_until_first(gateway.drain(), signals.stop_now.wait())
        finally:
            engine.cancel()
            await asyncio.wait([engine], timeout=FINAL_GRACE_S)
            stopped = signals.stop.is_set() and engine.done() and not engine.cancelled()
            if stopped and (error := engine.exception()) is not None:
                log.error("engine failed during shutdown: %s", error)
            await gateway.close()


async def _open(gateway: GatewayServer, stop: asyncio.Event) -> bool:
    """Opens the gateway, which starts its workers; returns False when `stop` was set first. Raises what `open` does."""
    opening = asyncio.ensure_future(gateway.open())
    try:
        await run_until_first(asyncio.wait([opening]), stop.wait())
    finally:
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
    if opening.cancelled():
        return False
    opening.result()
    return True


class _Signals:
    """Handles the signals of a gateway within a block: the first and second of SIGTERM and SIGINT, and SIGHUP.

    A SIGHUP before `opened` is remembered, because keys may have been read by then. After the block it has the effect
    that it had before.
    """

    def __init__(self, gateway: GatewayServer) -> None:
        self.stop, self.stop_now = asyncio.Event(), asyncio.Event()
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._open = self._reload = False

    def __enter__(self) -> Self:
        self._hangup = signal.getsignal(signal.SIGHUP)
        for number in _STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._on_stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (*_STOP_SIGNALS, signal.SIGHUP):
            self._loop.remove_signal_handler(number)
        signal.signal(signal.SIGHUP, self._hangup)

    def opened(self) -> None:
        """Reloads from now on when SIGHUP arrives, and at once if it did before."""
        self._open = True
        if self._reload:
            self._gateway.reload()

    def _on_stop(self) -> None:
        (self.stop_now if self.stop.is_set() else self.stop).set()

    def _on_hangup(self) -> None:
        if self._open:
            self._gateway.reload()
        else:
            self._reload = True
