"""A worker process: sockets, sessions, text and audio of some clients; slots come from the speech process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.gc_freeze import freeze_gc
from voxgate.pipeline.interface import EngineState
from voxgate.pipeline.ipc.engine_messages import Attach, Detach, GenerationEnded
from voxgate.pipeline.remote_synthesizer import RemoteSynthesizer

from ..access.auth import access_from_settings
from ..access.usage import SharedUsage
from ..listener import GatewayListener
from ..observability.events import CompositeObserver, Observer, UsageLog
from ..observability.exposition import CachedExposition
from ..observability.merged_metrics import WorkerMetrics, additive_samples
from ..observability.metrics import Metrics, watch_lag
from ..protocols.registry import PROTOCOL_NAMES
from ..session.lookup.pronunciations import Pronunciations
from ..session.outbox import EncoderFactory
from ..session.utterance_factory import UtteranceFactory
from ..settings import Settings
from ..shutdown import run_until_first
from .link import Link, LinkClosed
from .messages import (
    Answer,
    Ask,
    Drain,
    Listening,
    Question,
    Reload,
    Status,
    TicketGranted,
    TicketMoved,
    TicketRefused,
    ToWorker,
    WorkerInit,
)
from .remote_admission import RemoteAdmission

INIT_TIMEOUT_S = 30.0
"""Seconds in which the speech process must send its first message."""
EXPOSITION_TIMEOUT_S = 5.0
ANNOUNCE_TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


class RemoteEngineStatus:
    """The `EngineStatus` of a worker: as reported by the speech process, and whether this process is attached."""

    def __init__(self, synthesizer: RemoteSynthesizer) -> None:
        self._synthesizer = synthesizer
        self.reported_reason: str | None = "the voice model is loading"

    @property
    def state(self) -> EngineState:
        return self._synthesizer.state

    @property
    def reason(self) -> str | None:
        return None if self.state.speaks else self.reported_reason or "this process is attaching to the voice model"


class WorkerConnection:
    """A worker's end of the link, which holds messages until `hand_over`."""

    def __init__(self) -> None:
        self.link: Link[ToWorker] = Link(ToWorker, self._on_message, self._answer, self._on_lost)
        self.init: asyncio.Future[WorkerInit] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.worker: GatewayWorker | None = None
        self._early: list[ToWorker] = []

    async def open(self, sock: socket.socket) -> WorkerInit:
        """Opens the link on one end of a socket pair and returns the first message. Raises TimeoutError, LinkClosed."""
        await self.link.open(sock)
        async with asyncio.timeout(INIT_TIMEOUT_S):
            return await self.init

    def hand_over(self, worker: GatewayWorker) -> None:
        """Passes held and further messages to `worker`."""
        self.worker = worker
        early, self._early = self._early, []
        for message in early:
            worker.on_message(message)

    def _on_message(self, message: ToWorker) -> None:
        if isinstance(message, WorkerInit):
            self.init.set_result(message)
        elif self.worker is not None:
            self.worker.on_message(message)
        else:
            self._early.append(message)

    async def _answer(self, question: str) -> bytes:
        return b"" if self.worker is None else await self.worker.answer(question)

    def _on_lost(self) -> None:
        self.gone.set()
        if not self.init.done():
            self.init.set_exception(LinkClosed())


class GatewayWorker:
    """Serves from `open` until `run` returns, after a drain or the loss of the speech process.

    With a `library`, voices can be made over HTTP. `observers` are called in addition to metrics and log.
    """

    def __init__(
        self,
        init: WorkerInit,
        settings: Settings,
        synthesizer: RemoteSynthesizer,
        encoder_factory: EncoderFactory,
        link: Link[ToWorker],
        library: VoiceLibrary | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._init, self._synthesizer, self._link, self._library = init, synthesizer, link, library
        self._admission = RemoteAdmission(settings.queue_wait_ms, link.send)
        self._engine_status = RemoteEngineStatus(synthesizer)
        self._metrics = Metrics(None, PROTOCOL_NAMES)
        shared_usage = SharedUsage.attach(init.shared_usage, init.owner)
        self._listener = GatewayListener(
            UtteranceFactory(
                settings, synthesizer, encoder_factory, pronunciations=Pronunciations.from_settings(settings)
            ),
            self._admission,
            self._engine_status,
            access_from_settings(settings, shared_usage, init.secret),
            CompositeObserver((self._metrics, UsageLog(), *observers)),
            CachedExposition(self._ask_exposition) if settings.admin_port is None else None,
            None if settings.voice_uploads is False else library,
            shared_usage,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained = asyncio.Event()

    async def open(self) -> None:
        """Listens on the port that all workers share. Raises OSError."""
        await self._listener.open(self._init.port, reuse_port=True)
        self._start(watch_lag(self._metrics.observe_lag))
        if self._library is not None:
            self._start(self._library.watch())
        self._link.send(Listening())
        freeze_gc()

    async def run(self, gone: asyncio.Event) -> None:
        """Runs until the drain has finished or `gone` is set (the speech process is lost), then closes."""
        try:
            await run_until_first(gone.wait(), self._drained.wait())
        finally:
            await self._listener.close()
            await self._synthesizer.close()
            for task in self._tasks:
                task.cancel()
            self._link.close()

    def on_message(self, message: ToWorker) -> None:
        """Handles a message of the speech process."""
        match message:
            case TicketGranted() | TicketMoved() | TicketRefused():
                self._admission.on_message(message, asyncio.get_running_loop().time())
            case GenerationEnded():
                self._synthesizer.end(message.epoch, message.steps)
            case Status():
                self._admission.update_status(message)
                self._engine_status.reported_reason = message.reason
                self._synthesizer.reported_state = EngineState(message.engine)
            case Attach():
                self._synthesizer.attach(message, self._on_attached)
            case Detach():
                self._admission.on_engine_lost()
                self._synthesizer.detach(message.reason)
            case Drain():
                self._start(self._drain(message.deadline_s))
            case Reload():
                self._listener.reload(message.kinds)
            case WorkerInit() | Ask() | Answer():
                log.error("ignoring unexpected message %s", type(message).__name__)

    def _on_attached(self) -> None:
        self._admission.renew(asyncio.get_running_loop().time())

    async def answer(self, question: str) -> bytes:
        """Answers a question of the speech process."""
        if question == Question.COUNTS:
            return (await self._counts()).pack()
        if question == Question.VOICES and self._library is not None:
            await self._library.refresh()
        return b""

    async def _counts(self) -> WorkerMetrics:
        samples = await asyncio.to_thread(additive_samples, self._metrics.registry)
        sessions = self._listener.sessions
        return WorkerMetrics(
            samples=samples,
            sockets=dict(sessions.count_by_protocol()),
            leads_s=sessions.leads_s(),
        )

    async def _ask_exposition(self) -> bytes:
        """The metrics of all processes. Raises EngineLost when the speech process does not answer."""
        try:
            return await self._link.ask(Question.EXPOSITION, EXPOSITION_TIMEOUT_S)
        except (LinkClosed, TimeoutError) as error:
            raise EngineLost("the speech process did not answer in time") from error

    async def _drain(self, deadline_s: float) -> None:
        await self._listener.drain(deadline_s)
        self._drained.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the worker failed", exc_info=error)


async def announce_voices(link: Link[ToWorker]) -> None:
    """Makes all processes reload the folder of voices; a process that misses it polls the folder anyway."""
    with suppress(LinkClosed, TimeoutError):
        await link.ask(Question.VOICES, ANNOUNCE_TIMEOUT_S)
