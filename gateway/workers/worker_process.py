"""A worker as the speech process holds it: its process, its link and broker, and its attachment to the engine."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from voxgate.pipeline.ipc.engine_messages import AbortGeneration, Attach, Attached, Detach, Message, SubmitGeneration
from voxgate.pipeline.ipc.watchdog import HeartbeatWatchdog

from ..observability.merged_metrics import WorkerMetrics
from .broker import Broker
from .link import Link, LinkClosed
from .messages import FromWorker, Join, Leave, Listening, Question, WorkerInit

HEARTBEAT_INTERVAL_S = 1.0
"""Seconds between heartbeats of a worker."""
HEARTBEAT_TIMEOUT_S = 8.0
"""Seconds without an answer after which a worker counts as hanging."""
COUNTS_TIMEOUT_S = 1.0
"""Seconds to wait for the metrics of a worker; then its last ones are used."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """One worker process, from `start` until `gone` is set. `on_attached` is called when the engine is attached."""

    def __init__(
        self,
        owner: int,
        broker: Callable[[Callable[[Message], None]], Broker],
        answer: Callable[[str], Awaitable[bytes]],
        on_attached: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._link: Link[FromWorker] = Link(FromWorker, self._on_message, answer, self._on_lost)
        self.broker = broker(self._link.send)
        self._on_attached = on_attached
        self._process: Process | None = None
        self.listening = False
        self._settled = asyncio.Event()
        """Set when the worker listens or has ended."""
        self.reports: str | None = None
        """The address at which the worker gets reports of the current engine, once it was asked to attach to it."""
        self.attached = False
        """Whether the worker confirmed it."""
        self.gone = asyncio.Event()
        self.counts = WorkerMetrics([], {}, [])
        """The last metrics of the worker."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, command: Sequence[str], init: WorkerInit, descriptors: Sequence[int] = ()) -> None:
        """Starts the process, which inherits `descriptors`. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command, str(theirs.fileno()), stdin=DEVNULL, pass_fds=(theirs.fileno(), *descriptors)
            )
        await self._link.open(ours)
        self._link.send(init)

    def send(self, message: Message) -> None:
        self._link.send(message)

    async def refresh_counts(self) -> None:
        """Updates `counts`; they stay as they were if the worker does not answer in time."""
        with suppress(LinkClosed, TimeoutError):
            self.counts = WorkerMetrics.unpack(await self._link.ask(Question.COUNTS, COUNTS_TIMEOUT_S))

    async def ask(self, question: str, timeout_s: float) -> None:
        """Sends a question and waits for the answer; a lost worker or a late answer is no error."""
        with suppress(LinkClosed, TimeoutError):
            await self._link.ask(question, timeout_s)

    async def wait_until_listening(self, timeout_s: float) -> bool:
        """Waits until the worker listens; False if it ends before or does not listen in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        return self.listening

    async def wait_until_lost(self) -> str:
        """Waits until the worker has ended or hangs; returns "died" or "hangs"."""
        loop = asyncio.get_running_loop()
        watchdog = HeartbeatWatchdog(HEARTBEAT_TIMEOUT_S)
        while not self.gone.is_set():
            watchdog.on_request(loop.time())
            due_s = watchdog.due_s()
            try:
                await self._link.ask(Question.HEARTBEAT, due_s - loop.time())
            except TimeoutError:
                if watchdog.expired(loop.time(), due_s):
                    return "hangs"
                continue  # The timer was late: the answer may be unread, so the worker is asked again.
            except LinkClosed:
                break
            watchdog.on_message(loop.time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), HEARTBEAT_INTERVAL_S)
        return "died"

    async def ended(self, timeout_s: float) -> bool:
        """Waits for the end of the process; returns whether it ended in time."""
        if self._process is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        return self._process.returncode is not None

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _on_message(self, message: FromWorker) -> None:
        match message:
            case Join() | Leave() | SubmitGeneration() | AbortGeneration():
                self.broker.on_message(message, asyncio.get_running_loop().time())
            case Listening():
                self.listening = True
                self._settled.set()
            case Attached():
                self._on_attach_answer(message)

    def _on_attach_answer(self, answer: Attached) -> None:
        if answer.reports != self.reports:
            return  # of an engine that was lost meanwhile
        if answer.error is not None:
            self.forget_attachment()
        else:
            self.attached = True
            self.broker.engine_attached()
            self._on_attached()

    def forget_attachment(self) -> None:
        """The worker is not attached, and was not asked to attach, to any engine."""
        self.reports, self.attached = None, False

    def _on_lost(self) -> None:
        self.gone.set()
        self._settled.set()


class EngineAttachments:
    """Attaches every worker to the engine once per engine. Synchronous.

    `attachment` makes the attachment of a worker from its number and its last epoch, None without an engine.
    `workers` holds the current workers by number.
    """

    def __init__(self, attachment: Callable[[int, int], Attach | None], workers: Mapping[int, WorkerProcess]) -> None:
        self._attachment, self._workers = attachment, workers
        self._epochs: dict[int, int] = {}
        """Last epochs of ended workers, by number."""
        self.all_attached = False
        """Whether every worker has been attached to the current engine at the same time."""

    def attach_all(self) -> None:
        """Attaches every worker that is not attached yet."""
        for worker in self._workers.values():
            self.attach(worker)

    def attach(self, worker: WorkerProcess) -> None:
        """Attaches a worker if it listens, is not attached, and there is an engine."""
        if not worker.listening or worker.reports is not None:
            return
        if (attachment := self._attachment(worker.owner, self._last_epoch(worker))) is not None:
            worker.reports = attachment.reports
            worker.send(attachment)

    def worker_attached(self) -> None:
        """A worker confirmed its attachment. Workers that ended meanwhile are not waited for; their successors are."""
        self.all_attached |= all(worker.attached for worker in self._workers.values())

    def on_engine_lost(self, reason: str) -> None:
        """The engine is lost, and with it every slot lease."""
        self.all_attached = False
        for worker in self._workers.values():
            worker.forget_attachment()
            worker.broker.engine_lost()
            worker.send(Detach(reason))

    def on_worker_ended(self, worker: WorkerProcess) -> None:
        """Remembers the epochs of an ended worker, which its successor must not reuse."""
        self._epochs[worker.owner] = self._last_epoch(worker)

    def _last_epoch(self, worker: WorkerProcess) -> int:
        return worker.broker.last_epoch or self._epochs.get(worker.owner, 0)
