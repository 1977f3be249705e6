"""The speech process: it has the voice model, decides who may speak, and keeps the workers that speak to clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ...pipeline.cloning.library import VoiceLibrary
from ...pipeline.errors import EngineError
from ...pipeline.shared.messages import Attach, Message
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
from ..restarts import Restarts
from ..room import Room
from ..settings import Settings
from ..state import GatewayState
from ..tls import tls_context
from .desk import Callers, Desk, Lender
from .entrances import Entrances
from .messages import Drain, Question, Reload, Status, Welcome
from .ports import SharedPort
from .process import WorkerProcess

TELL_S = 0.05
"""Workers are told how things are at most so often."""
START_S = 60.0
"""A worker has to listen by then."""
VOICES_S = 5.0
_LAST_S = 3.0
"""What is left after the drain's deadline gets so long to end properly."""

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
        self._owners = range(1, workers + 1)
        configured_access(settings)
        tls_context(settings)
        self._secret = secrets.token_bytes(32)
        self._ledger = Ledger.create()
        self._port = SharedPort()
        self._metrics = Metrics(self._state, DIALECTS)
        self._totals = Totals()
        self._agent = Agent(self._room)
        self._places = room = Room(settings, synthesizer)
        self._admission = Admission(room.slots, settings.queue_length, settings.queue_wait_ms, room.free_slots)
        self._callers = Callers()
        self._engine = EngineWatch(synthesizer, self._ready, self._look, self._lost)
        self._workers: dict[int, WorkerProcess] = {}
        self._entrances = Entrances(synthesizer.way_in, self._workers)
        self._keeping: list[asyncio.Task[None]] = []
        self._telling: list[asyncio.Task[None]] = []
        self._told: Status | None = None
        self._drained = False

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
        return self._places.slots()

    async def open(self) -> None:
        """Returns when every worker listens. Raises OSError when the address is taken, EngineError when one fails."""
        settings, loop = self._settings, asyncio.get_running_loop()
        self._port.open(settings.host, settings.port)
        first = [loop.create_future() for _ in self._owners]
        self._keeping = [
            loop.create_task(self._keep(owner, listens), name=f"worker {owner}")
            for owner, listens in zip(self._owners, first, strict=True)
        ]
        await asyncio.gather(*first)
        if settings.agent_port is not None:
            await self._agent.open(settings.host, settings.agent_port)
        self._telling = [
            loop.create_task(self._keep_telling(), name="status"),
            loop.create_task(watch_lag(self._metrics.lag), name="loop lag"),
        ]
        log.info("listening on %s:%d with %d workers", settings.host, self.port, len(self._owners))

    def reload(self) -> None:
        """Have the workers read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        self._send_all(Reload())

    async def keep_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        self._drained = True
        deadline_s = self._settings.drain_s
        self._send_all(Drain(deadline_s))
        await asyncio.gather(*(worker.ended(deadline_s + _LAST_S) for worker in self._workers.values()))

    async def close(self) -> None:
        """Cut what is still open, and stop the workers and the engine."""
        self._drained = True
        self._send_all(Drain(0.0))
        await asyncio.gather(*(worker.ended(_LAST_S) for worker in self._workers.values()))
        tasks = [*self._telling, *self._keeping]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(worker.kill() for worker in self._workers.values()))
        self._agent.close()
        self._port.close()
        await self._synthesizer.close()

    # Workers

    async def _keep(self, owner: int, listens: asyncio.Future[None]) -> None:
        """Have a worker of that number, always; `listens` is set when the first one does, or to why it does not."""
        loop, restarts = asyncio.get_running_loop(), Restarts()
        while not self._drained:
            came_in = self._entrances.came_in
            worker = WorkerProcess(owner, self._desk, self._answer, self._synthesizer.wake, came_in)
            self._workers[owner] = worker
            fate = "did not start"
            try:
                await worker.start(self._command, self._welcome(owner))
                await self._settle_in(worker)
                restarts.ready(loop.time())
                if not listens.done():
                    listens.set_result(None)
                fate = await worker.lived()
            except Exception as error:
                # Another is started whatever it was, and who waits for the first is told.
                expected = isinstance(error, OSError | EngineError)
                log.error("a worker did not start: %s", error, exc_info=None if expected else error)
                if not listens.done():
                    listens.set_exception(error)
            finally:
                if fate == "died":
                    # What is left to one that has closed its end is to send its last traces.
                    await worker.ended(_LAST_S)
                await worker.kill()
                self._bury(worker)
            if not self._drained:
                pause_s = restarts.lost(loop.time())
                log.error("worker %d %s, its sockets are lost; another starts in %g s", owner, fate, pause_s)
                await asyncio.sleep(pause_s)

    async def _settle_in(self, worker: WorkerProcess) -> None:
        """Raises EngineError when the worker does not come to listen."""
        if not await worker.came_to_listen(START_S):
            raise EngineError("a worker process did not come to listen")
        if self._told is not None:
            worker.send(self._told)
        if self._drained:
            worker.send(Drain(0.0))
        self._entrances.let_in(worker)

    def _bury(self, worker: WorkerProcess) -> None:
        """Give back everything it held."""
        del self._workers[worker.owner]
        worker.desk.gone(asyncio.get_running_loop().time())
        self._entrances.gone(worker)
        self._ledger.strike_out(worker.owner)
        self._totals.keep(worker.counts.samples)

    def _desk(self, send: Callable[[Message], None]) -> Desk:
        return Desk(self._admission, self._callers, self._synthesizer, send)

    def _welcome(self, owner: int) -> Welcome:
        return Welcome(
            settings=self._settings.model_dump_json(),
            folder=str(self._folder),
            owner=owner,
            port=self.port,
            ledger=self._ledger.path,
            secret=self._secret,
        )

    def _send_all(self, message: Message) -> None:
        for worker in self._workers.values():
            worker.send(message)

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

    def _room(self) -> GatewayState:
        """For a balancer: how many sockets there are is known at any time, of what dialect is not."""
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
            draining=self._drained,
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
            self._send_all(status)

    # Engine

    def _ready(self) -> None:
        self._places.check_voice()
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
