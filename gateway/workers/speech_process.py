"""The speech process: it has the voice model, decides who may speak, and tells the workers how things are."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ...pipeline.cloning.library import VoiceLibrary
from ...pipeline.shared.messages import Attach
from ...pipeline.speech import EngineState, Synthesizer
from ..access.configured import configured_access
from ..access.ledger import Ledger
from ..admission import Admission
from ..agent import Agent
from ..dialects.registry import DIALECTS
from ..engine import EngineWatch
from ..loop_lag import watch_lag
from ..metrics import Metrics
from ..metrics_merged import Totals
from ..room import Room
from ..settings import Settings
from ..state import GatewayState
from ..tls import tls_context
from .desk import Callers, Desk, Lender
from .entrances import Entrances
from .messages import Question, Reload, Status, Welcome
from .ports import SharedPort
from .process import WorkerProcess
from .supervisor import Supervisor

TELL_S = 0.05
"""Workers are told how things are at most so often."""
VOICES_S = 5.0
"""For the workers to look for new voices."""

log = logging.getLogger(__name__)


class SharedVoice(Synthesizer, Lender, Protocol):
    """A voice model that other processes can speak through."""

    def way_in(self, owner: int, last_epoch: int) -> Attach | None:
        """How the process of that number does; None while nobody can."""


class SpeechProcess:
    """Serves from `open` until `close`; `drain` ends it gracefully. All in one event loop.

    `command` starts a worker; it gets the number of a descriptor as its last argument. `folder`: the checkpoint's.
    Raises SettingsError for what a worker could not use either.
    """

    def __init__(
        self,
        settings: Settings,
        synthesizer: SharedVoice,
        folder: Path,
        workers: int,
        command: Sequence[str],
        library: VoiceLibrary | None = None,
    ) -> None:
        self._settings, self._synthesizer, self._folder, self._library = settings, synthesizer, folder, library
        self._command = command
        configured_access(settings)
        tls_context(settings)
        self._secret = secrets.token_bytes(32)
        self._ledger = Ledger.create()
        self._port = SharedPort()
        self._metrics = Metrics(self._state, DIALECTS)
        self._totals = Totals()
        self._agent = Agent(self._state_for_balancer)
        self._room = room = Room(settings, synthesizer)
        self._admission = Admission(room.slots, settings.queue_length, settings.queue_wait_ms, room.free_slots)
        self._callers = Callers()
        self._engine = EngineWatch(synthesizer, self._ready, self._look, self._lost)
        self._supervisor = Supervisor(range(1, workers + 1), self)
        self._workers = self._supervisor.workers
        self._entrances = Entrances(synthesizer.way_in, self._workers)
        self._telling: list[asyncio.Task[None]] = []
        self._told: Status | None = None

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port.number

    @property
    def agent_port(self) -> int | None:
        """The port where balancers ask for room, if there is one."""
        return self._agent.port

    @property
    def pids(self) -> list[int]:
        """Of the workers that are there."""
        return [worker.pid for worker in self._workers.values() if worker.pid is not None]

    @property
    def state(self) -> EngineState:
        """The voice model's, as clients find it: ready once all workers could speak through it."""
        state = self._synthesizer.state
        return EngineState.STARTING if state.speaks and not self._entrances.all_in else state

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once."""
        return self._room.slots()

    async def open(self) -> None:
        """Returns when every worker listens. Raises OSError when the address is taken, EngineError when one fails.

        Raises SettingsError for a voice that the model has not.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        self._room.check_voices()
        self._port.open(settings.host, settings.port)
        await self._supervisor.open()
        if settings.agent_port is not None:
            await self._agent.open(settings.host, settings.agent_port)
        self._telling = [
            loop.create_task(self._keep_telling(), name="status"),
            loop.create_task(watch_lag(self._metrics.lag), name="loop lag"),
        ]
        log.info("listening on %s:%d with %d workers", settings.host, self.port, len(self._workers))

    def reload(self) -> None:
        """Have the workers read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        self._supervisor.send_all(Reload())

    async def keep_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self._supervisor.drain(self._settings.drain_s)

    async def close(self) -> None:
        """Cut what is still open, and stop the workers and the engine."""
        await self._supervisor.drain(0.0)
        for task in self._telling:
            task.cancel()
        if self._telling:
            await asyncio.wait(self._telling)
        await self._supervisor.close()
        self._agent.close()
        self._port.close()
        await self._synthesizer.close()

    # Workers, as the supervisor asks for them

    def make(self, owner: int) -> WorkerProcess:
        return WorkerProcess(
            owner,
            lambda send: Desk(self._admission, self._callers, self._synthesizer, send),
            self._answer,
            self._entrances.came_in,
        )

    async def start(self, worker: WorkerProcess) -> None:
        welcome = Welcome(
            settings=self._settings.model_dump_json(),
            folder=str(self._folder),
            owner=worker.owner,
            port=self.port,
            ledger=self._ledger.path,
            secret=self._secret,
        )
        await worker.start(self._command, welcome)

    def settled(self, worker: WorkerProcess) -> None:
        if self._told is not None:
            worker.send(self._told)
        self._entrances.let_in(worker)

    def gone(self, worker: WorkerProcess) -> None:
        worker.desk.gone(asyncio.get_running_loop().time())
        self._entrances.gone(worker)
        self._ledger.strike_out(worker.owner)
        self._totals.keep(worker.counts.samples)

    async def _answer(self, question: str) -> bytes:
        """What a worker asks."""
        if question == Question.EXPOSITION:
            await asyncio.gather(*(worker.refresh_counts() for worker in self._workers.values()))
            # Those of one that died meanwhile are in the totals already.
            counted = [worker.counts.samples for worker in self._workers.values()]
            return self._totals.exposition(self._metrics.registry, counted)
        if question == Question.VOICES:
            if self._library is not None:
                await self._library.refresh()
            await asyncio.gather(*(worker.ask(question, VOICES_S) for worker in self._workers.values()))
        return b""

    # Watching

    def _state_for_balancer(self) -> GatewayState:
        """How many sockets there are is known at any time, of what dialect is not."""
        return self._state_with({"": self._ledger.open_sockets})

    def _state(self) -> GatewayState:
        """For the metrics, just after the workers have told their counts."""
        told = [Counter(worker.counts.sockets) for worker in self._workers.values()]
        return self._state_with(dict.fromkeys(DIALECTS, 0) | sum(told, Counter()))

    def _state_with(self, sockets: Mapping[str, int]) -> GatewayState:
        return GatewayState.now(
            self._settings,
            self._admission,
            self._synthesizer,
            sockets=sockets,
            engine=self.state,
            draining=self._supervisor.draining,
            leads_s=[lead_s for worker in self._workers.values() for lead_s in worker.counts.leads_s],
        )

    async def _keep_telling(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(TELL_S)

    def _tell(self) -> None:
        """Tell the workers how things are, if that is new."""
        admission = self._admission
        retry_ms = admission.refusal("").retry_after_ms or 0
        reason = self._engine.reason
        status = Status(
            self._synthesizer.state.value, reason, admission.slots, admission.active, admission.queued, retry_ms
        )
        if status != self._told:
            self._told = status
            self._supervisor.send_all(status)

    # Engine

    def _ready(self) -> None:
        self._metrics.engine_ready()
        self._tell()
        self._look()

    def _look(self) -> None:
        """The engine may carry more than before, and a worker that could not reach it may now."""
        self._entrances.look()
        self._admission.admit(asyncio.get_running_loop().time())

    def _lost(self) -> None:
        self._entrances.lost("the voice model was lost")
        self._tell()
