"""A port that several processes are going to listen on: found and kept by the one that starts them."""
# TODO-DOC The speech process: it has the voice model, decides who may speak, and tells the workers how things are.

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.interface import EngineState, Synthesizer
from voxgate.pipeline.ipc.engine_messages import Attach

from ..access.auth import access_from_settings
from ..access.usage import SharedUsage
from ..engine import EngineSupervisor
from ..listener import tls_context
from ..observability.merged_metrics import MergedMetrics
from ..observability.metrics import Metrics, watch_lag
from ..observability.state import GatewayState
from ..protocols.registry import PROTOCOL_NAMES
from ..session.admission import AdmissionQueue, CapacityPolicy
from ..session.utterance_factory import check_configured_voices
from ..settings import Settings
from ..transport.haproxy_agent import HAProxyAgent
from .broker import Broker, CallerRegistry, SlotLender
from .messages import Question, Reload, Status, WorkerInit
from .supervisor import Supervisor
from .worker_process import EngineAttachments, WorkerProcess


class SharedPort:
    """Kept from `open` to `close`: bound, so that it stays ours while no worker listens, and not listened on."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.number = 0

    def open(self, host: str, port: int) -> None:
        """Raises OSError when anybody else listens there."""
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in addresses:
                at = (address[0], self.number or port, *address[2:])
                # A bind beside others would succeed beside another gateway's too.
                with _socket(family, kind, protocol) as alone:
                    alone.bind(at)
                    at = (address[0], alone.getsockname()[1], *address[2:])
                beside = _socket(family, kind, protocol)
                self._sockets.append(beside)
                beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                beside.bind(at)
                self.number = at[1]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


def _socket(family: int, kind: int, protocol: int) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


STATUS_INTERVAL_S = 0.05
"""Workers are told how things are at most so often."""
VOICES_TIMEOUT_S = 5.0
"""For the workers to look for new voices."""

log = logging.getLogger(__name__)


class ShareableSynthesizer(Synthesizer, SlotLender, Protocol):
    """A voice model that other processes can speak through."""

    def attachment(self, owner: int, last_epoch: int) -> Attach | None:
        """How the process of that number does; None while nobody can."""


class SpeechProcess:
    """Serves from `open` until `close`; `drain` ends it gracefully. All in one event loop.

    `command` starts a worker; it gets the number of a descriptor as its last argument. `folder`: the checkpoint's.
    Raises SettingsError for what a worker could not use either.
    """

    def __init__(
        self,
        settings: Settings,
        synthesizer: ShareableSynthesizer,
        folder: Path,
        workers: int,
        command: Sequence[str],
        library: VoiceLibrary | None = None,
    ) -> None:
        self._settings, self._synthesizer, self._folder, self._library = settings, synthesizer, folder, library
        self._command = command
        access_from_settings(settings)
        tls_context(settings)
        self._secret = secrets.token_bytes(32)
        self._shared_usage = SharedUsage.create()
        self._port = SharedPort()
        self._metrics = Metrics(self._state, PROTOCOL_NAMES)
        self._totals = MergedMetrics()
        self._haproxy_agent = HAProxyAgent(self._state_for_balancer)
        self._capacity = room = CapacityPolicy(settings, synthesizer)
        self._admission = AdmissionQueue(room.slots, settings.queue_length, settings.queue_wait_ms, room.free_slots)
        self._callers = CallerRegistry()
        self._engine = EngineSupervisor(synthesizer, self._ready, self._look, self._lost)
        self._supervisor = Supervisor(range(1, workers + 1), self)
        self._workers = self._supervisor.workers
        self._attachments = EngineAttachments(synthesizer.attachment, self._workers)
        self._telling: list[asyncio.Task[None]] = []
        self._told: Status | None = None

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port.number

    @property
    def haproxy_agent_port(self) -> int | None:
        """The port where balancers ask for room, if there is one."""
        return self._haproxy_agent.port

    @property
    def pids(self) -> list[int]:
        """Of the workers that are there."""
        return [worker.pid for worker in self._workers.values() if worker.pid is not None]

    @property
    def state(self) -> EngineState:
        """The voice model's, as clients find it: ready once all workers could speak through it."""
        state = self._synthesizer.state
        return EngineState.STARTING if state.speaks and not self._attachments.all_attached else state

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once."""
        return self._capacity.slots()

    async def open(self) -> None:
        """Returns when every worker listens. Raises OSError when the address is taken, EngineError when one fails.

        Raises SettingsError for a voice that the model has not.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        check_configured_voices(settings, self._synthesizer.voices)
        self._port.open(settings.host, settings.port)
        await self._supervisor.open()
        if settings.haproxy_agent_port is not None:
            await self._haproxy_agent.open(settings.host, settings.haproxy_agent_port)
        self._telling = [
            loop.create_task(self._keep_telling(), name="status"),
            loop.create_task(watch_lag(self._metrics.observe_lag), name="loop lag"),
        ]
        log.info("listening on %s:%d with %d workers", settings.host, self.port, len(self._workers))

    def reload(self) -> None:
        """Have the workers read keys and certificate anew; what cannot be used is logged, and the old ones stay."""
        self._supervisor.send_all(Reload())

    async def run_engine(self) -> None:
        """Load the model and keep it alive; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Take nothing new, let speech under way finish until the deadline, then close what is left."""
        await self._supervisor.drain(self._settings.shutdown_grace_s)

    async def close(self) -> None:
        """Cut what is still open, and stop the workers and the engine."""
        await self._supervisor.drain(0.0)
        for task in self._telling:
            task.cancel()
        if self._telling:
            await asyncio.wait(self._telling)
        await self._supervisor.close()
        self._haproxy_agent.close()
        self._port.close()
        await self._synthesizer.close()

    # Workers, as the supervisor asks for them

    def make(self, owner: int) -> WorkerProcess:
        return WorkerProcess(
            owner,
            lambda send: Broker(self._admission, self._callers, self._synthesizer, send),
            self._answer,
            self._attachments.worker_attached,
        )

    async def start(self, worker: WorkerProcess) -> None:
        init = WorkerInit(
            settings=self._settings.model_dump_json(),
            folder=str(self._folder),
            owner=worker.owner,
            port=self.port,
            shared_usage=self._shared_usage.path,
            secret=self._secret,
        )
        await worker.start(self._command, init)

    def settled(self, worker: WorkerProcess) -> None:
        if self._told is not None:
            worker.send(self._told)
        self._attachments.attach(worker)

    def gone(self, worker: WorkerProcess) -> None:
        worker.broker.gone(asyncio.get_running_loop().time())
        self._attachments.gone(worker)
        self._shared_usage.clear_process(worker.owner)
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
            await asyncio.gather(*(worker.ask(question, VOICES_TIMEOUT_S) for worker in self._workers.values()))
        return b""

    # Watching

    def _state_for_balancer(self) -> GatewayState:
        """How many sockets there are is known at any time, of what protocol is not."""
        return self._state_with({"": self._shared_usage.open_sockets})

    def _state(self) -> GatewayState:
        """For the metrics, just after the workers have told their counts."""
        told = [Counter(worker.counts.sockets) for worker in self._workers.values()]
        return self._state_with(dict.fromkeys(PROTOCOL_NAMES, 0) | sum(told, Counter()))

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
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _tell(self) -> None:
        """Tell the workers how things are, if that is new."""
        admission = self._admission
        retry_ms = admission.capacity_error("").retry_after_ms or 0
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
        self._attachments.look()
        self._admission.admit(asyncio.get_running_loop().time())

    def _lost(self) -> None:
        self._attachments.lost("the voice model was lost")
        self._tell()
