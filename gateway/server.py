"""The gateway as one process: its port, and the voice model beside it; up before its model, down after its speech."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from ..pipeline.cloning.library import VoiceLibrary
from ..pipeline.speech import Synthesizer
from .access.configured import configured_access
from .admission import Admission
from .agent import Agent
from .audio import EncoderFactory
from .dialects.registry import DIALECTS
from .engine import EngineWatch
from .front import Front
from .loop_lag import watch_lag
from .metrics import Metrics
from .observer import Observer
from .opening import Offer
from .room import Room
from .serving import serve_until_told
from .settings import Settings
from .state import GatewayState
from .telemetry import Telemetry, UsageLog


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
        self._room = room = Room(settings, synthesizer)
        self._admission = Admission(room.slots, settings.queue_length, settings.queue_wait_ms, room.free_slots)
        self._engine = EngineWatch(synthesizer, on_ready=self._ready, on_look=self._admit_waiting)
        self._front = Front(
            Offer(settings, synthesizer, encoder_factory),
            self._admission,
            self._engine,
            configured_access(settings),
            self._observer,
            self._exposition,
            library,
        )
        self._sessions = self._front.sessions

    @property
    def port(self) -> int:
        """The port in use."""
        return self._front.port

    @property
    def agent_port(self) -> int | None:
        """The port where balancers ask for room, if there is one."""
        return self._agent.port

    async def open(self) -> None:
        """Listen. Raises OSError when the address is taken, SettingsError for a voice that the model has not."""
        settings = self._settings
        self._room.check_voices()
        await self._front.open(settings.port)
        if settings.agent_port is not None:
            await self._agent.open(settings.host, settings.agent_port)
        self._watching = asyncio.get_running_loop().create_task(watch_lag(self._metrics.lag), name="loop lag")

    def reload(self) -> None:
        """Read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        self._front.reload()

    async def keep_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self._front.drain(self._settings.drain_s)

    async def close(self) -> None:
        """Cut what is still open, and stop the engine."""
        if self._watching is not None:
            self._watching.cancel()
        self._agent.close()
        await self._front.close()
        await self._synthesizer.close()

    # Watching

    def _state(self) -> GatewayState:
        now_s = asyncio.get_running_loop().time()
        return GatewayState.now(
            self._settings,
            self._admission,
            self._synthesizer,
            sockets=dict.fromkeys(DIALECTS, 0) | Counter(session.dialect for session in self._sessions),
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
    await serve_until_told(Gateway(settings, synthesizer, encoder_factory, observers, library), on_listening)
