"""The speech process: starts the engine, admits utterances of all workers, and keeps the workers informed.

It also reserves the ports on which the workers listen.
"""

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
from ..http.admin import AdminListener
from ..observability.exposition import CachedExposition
from ..observability.merged_metrics import MergedMetrics
from ..observability.metrics import Metrics, watch_lag
from ..observability.state import GatewayState
from ..protocols.registry import PROTOCOL_NAMES
from ..session.admission import AdmissionQueue, CapacityPolicy
from ..session.utterance_factory import check_configured_voices
from ..settings import Settings, listening
from ..transport.haproxy_agent import HAProxyAgent
from .broker import Broker, CallerRegistry, SlotLender
from .file_copies import FileCopies
from .messages import Question, Reload, Status, WorkerInit
from .supervisor import Supervisor
from .worker_process import EngineAttachments, WorkerProcess


class SharedPort:
    """A port bound without listening, so that it stays reserved while workers start and restart."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.number = 0

    def open(self, host: str, port: int) -> None:
        """Binds the port, a free one for 0. Raises OSError when another program listens there."""
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in addresses:
                at = (address[0], self.number or port, *address[2:])
                # A shared bind alone would also succeed on the port of another gateway.
                with _socket(family, kind, protocol) as exclusive:
                    exclusive.bind(at)
                    at = (address[0], exclusive.getsockname()[1], *address[2:])
                shared = _socket(family, kind, protocol)
                self._sockets.append(shared)
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                shared.bind(at)
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
"""Seconds between checks whether workers need a new status."""
VOICES_TIMEOUT_S = 5.0
"""Seconds in which workers must reload the folder of voices."""

log = logging.getLogger(__name__)


class ShareableSynthesizer(Synthesizer, SlotLender, Protocol):
    """A voice model that other processes can attach to."""

    def attachment(self, owner: int, last_epoch: int) -> Attach | None:
        """The attachment of the process of a number; None without an engine."""


class SpeechProcess:
    """Serves from `open` until `close`; `drain` shuts it down gracefully.

    `command` starts a worker and gets the number of a descriptor as its last argument; `folder` is the checkpoint's.
    Raises SettingsError for settings that a worker could not use.
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
        self._files = FileCopies(settings)
        access = access_from_settings(settings)
        self._secret = secrets.token_bytes(32)
        self._shared_usage = SharedUsage.create()
        self._port, self._wyoming_port = SharedPort(), SharedPort()
        self._metrics = Metrics(self._state, PROTOCOL_NAMES)
        self._totals = MergedMetrics()
        self._haproxy_agent = HAProxyAgent(self._state_for_balancer)
        self._capacity = capacity = CapacityPolicy(settings, synthesizer)
        self._admission = AdmissionQueue(
            capacity.slots,
            settings.queue_length,
            settings.queue_wait_ms,
            capacity.free_slots,
            settings.caller_share,
        )
        self._callers = CallerRegistry()
        self._engine = EngineSupervisor(synthesizer, self._on_ready, self._on_poll, self._on_lost)
        self._supervisor = Supervisor(range(1, workers + 1), self)
        self._exposition = CachedExposition(self._make_exposition)
        self._admin = AdminListener(self, lambda: self._supervisor.draining, self._exposition, access)
        self._workers = self._supervisor.workers
        self._attachments = EngineAttachments(synthesizer.attachment, self._workers)
        self._tasks: list[asyncio.Task[None]] = []
        self._sent_status: Status | None = None

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port.number

    @property
    def haproxy_agent_port(self) -> int | None:
        """The port of the HAProxy agent, if there is one."""
        return self._haproxy_agent.port

    @property
    def admin_port(self) -> int | None:
        """The port of probes and metrics, if there is one."""
        return self._admin.port

    @property
    def pids(self) -> list[int]:
        """Process ids of the current workers."""
        return [worker.pid for worker in self._workers.values() if worker.pid is not None]

    @property
    def state(self) -> EngineState:
        """The state of the voice model as clients see it: ready once all workers are attached."""
        state = self._synthesizer.state
        return EngineState.STARTING if state.speaks and not self._attachments.all_attached else state

    @property
    def reason(self) -> str | None:
        """Why no speech can be started; None when speech can be started."""
        return None if self.state.speaks else self._engine.reason or "the workers are attaching to the voice model"

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once."""
        return self._capacity.slots()

    async def open(self) -> None:
        """Starts the workers; returns when they listen.

        Raises OSError when the address is in use, EngineError when a worker fails, SettingsError for another port or
        an unknown voice.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        check_configured_voices(settings, self._synthesizer.voices)
        self._port.open(settings.host, settings.port)
        if settings.wyoming_port:
            with listening("wyoming_port", settings.host, settings.wyoming_port):
                self._wyoming_port.open(settings.host, settings.wyoming_port)
        if settings.admin_port is not None:
            await self._admin.open(settings.admin_host, settings.admin_port)
        if settings.haproxy_agent_port is not None:
            await self._haproxy_agent.open(settings.host, settings.haproxy_agent_port)
        await self._supervisor.open()
        self._tasks = [
            loop.create_task(self._send_status_on_change(), name="status"),
            loop.create_task(watch_lag(self._metrics.observe_lag), name="loop lag"),
        ]
        log.info("listening on %s:%d with %d workers", settings.host, self.port, len(self._workers))

    def reload(self) -> None:
        """Reads keys and certificate again for all workers. Logs what cannot be used and keeps the previous ones."""
        self._supervisor.send_all(Reload(self._files.reload()))

    async def run_engine(self) -> None:
        """Loads the model and restarts it after a loss; never returns. Raises EngineError when it cannot be loaded."""
        await self._engine.run()

    async def drain(self) -> None:
        """Refuses new speech, lets current speech finish within the grace period, then closes the rest."""
        await self._supervisor.drain(self._settings.shutdown_grace_s)

    async def close(self) -> None:
        """Cuts what is still open and stops workers and engine."""
        await self._supervisor.drain(0.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._supervisor.close()
        self._haproxy_agent.close()
        await self._admin.close()
        self._port.close()
        self._wyoming_port.close()
        await self._synthesizer.close()

    # WorkerDelegate

    def make(self, owner: int) -> WorkerProcess:
        return WorkerProcess(
            owner,
            lambda send: Broker(self._admission, self._callers, self._synthesizer, send),
            self._answer,
            self._attachments.worker_attached,
        )

    async def start(self, worker: WorkerProcess) -> None:
        init = WorkerInit(
            settings=self._files.settings.model_dump_json(),
            folder=str(self._folder),
            owner=worker.owner,
            port=self.port,
            shared_usage=self._shared_usage.path,
            secret=self._secret,
        )
        await worker.start(self._command, init, self._files.descriptors)

    def settled(self, worker: WorkerProcess) -> None:
        if self._sent_status is not None:
            worker.send(self._sent_status)
        self._attachments.attach(worker)

    def gone(self, worker: WorkerProcess) -> None:
        worker.broker.on_worker_ended(asyncio.get_running_loop().time())
        self._attachments.on_worker_ended(worker)
        self._shared_usage.clear_process(worker.owner)
        self._totals.keep(worker.counts.samples)

    async def _answer(self, question: str) -> bytes:
        """Answers a question of a worker."""
        if question == Question.EXPOSITION:
            return await self._exposition()
        if question == Question.VOICES:
            if self._library is not None:
                await self._library.refresh()
            await asyncio.gather(*(worker.ask(question, VOICES_TIMEOUT_S) for worker in self._workers.values()))
        return b""

    async def _make_exposition(self) -> bytes:
        """The metrics of all processes."""
        await asyncio.gather(*(worker.refresh_counts() for worker in self._workers.values()))
        # The totals already contain workers that ended meanwhile.
        current = [worker.counts.samples for worker in self._workers.values()]
        self._metrics.update_state()
        return await asyncio.to_thread(self._totals.exposition, self._metrics.registry, current)

    # Status

    def _state_for_balancer(self) -> GatewayState:
        # Sockets by protocol are known only after the workers were asked.
        return self._state_with({"": self._shared_usage.open_sockets})

    def _state(self) -> GatewayState:
        # Called after the workers have reported their metrics.
        sockets = [Counter(worker.counts.sockets) for worker in self._workers.values()]
        return self._state_with(dict.fromkeys(PROTOCOL_NAMES, 0) | sum(sockets, Counter()))

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

    async def _send_status_on_change(self) -> None:
        while True:
            self._send_status()
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _send_status(self) -> None:
        """Sends the status to the workers if it changed."""
        admission = self._admission
        status = Status(
            self._synthesizer.state.value,
            self._engine.reason,
            admission.slots,
            admission.active,
            admission.queued,
            admission.retry_ms,
        )
        if status != self._sent_status:
            self._sent_status = status
            self._supervisor.send_all(status)

    # Engine

    def _on_ready(self) -> None:
        self._metrics.engine_ready()
        self._send_status()
        self._attachments.attach_all()
        self._admission.renew(asyncio.get_running_loop().time())

    def _on_poll(self) -> None:
        # The capacity may have grown, and a worker that failed to attach may succeed now.
        self._attachments.attach_all()
        self._admission.admit(asyncio.get_running_loop().time())

    def _on_lost(self) -> None:
        self._attachments.on_engine_lost("the voice model was lost")
        self._send_status()
