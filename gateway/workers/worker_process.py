"""A worker as the speech process holds it: the operating system's process, the link to it, and its account."""
# TODO-DOC Which workers can speak through the present engine: each is let in once for each, and again when it was cut
# TODO-DOC off.

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
"""Pause between looks at whether a worker answers."""
HEARTBEAT_TIMEOUT_S = 8.0
"""One that has not answered for so long is taken for dead: its listeners have heard nothing for as long."""
COUNTS_TIMEOUT_S = 1.0
"""A worker that does not tell its counts by then is busy; its last ones stand."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """From `start` until `gone` is set. `on_attached` is called when it can speak through the engine."""

    def __init__(
        self,
        owner: int,
        broker: Callable[[Callable[[Message], None]], Broker],
        answer: Callable[[str], Awaitable[bytes]],
        on_attached: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._link: Link[FromWorker] = Link(FromWorker, self._take, answer, self._lost)
        self.broker = broker(self._link.send)
        self._on_attached = on_attached
        self._process: Process | None = None
        self.listening = False
        self._settled = asyncio.Event()
        """It listens, or is gone."""
        self.attach_sent = False
        """It was told how to speak through the present engine..."""
        self.attached = False
        """...and can."""
        self.gone = asyncio.Event()
        self.counts = WorkerMetrics([], {}, [])
        """The last it told."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, command: Sequence[str], init: WorkerInit) -> None:
        """Start the process. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command, str(theirs.fileno()), stdin=DEVNULL, pass_fds=(theirs.fileno(),)
            )
        await self._link.open(ours)
        self._link.send(init)

    def send(self, message: Message) -> None:
        self._link.send(message)

    async def refresh_counts(self) -> None:
        """Have `counts` be what it has counted until now; where it does not answer, they stay the last it told."""
        with suppress(LinkClosed, TimeoutError):
            self.counts = WorkerMetrics.unpack(await self._link.ask(Question.COUNTS, COUNTS_TIMEOUT_S))

    async def ask(self, question: str, timeout_s: float) -> None:
        """Have it do something. It not being there, or not answering in time, is no error."""
        with suppress(LinkClosed, TimeoutError):
            await self._link.ask(question, timeout_s)

    async def wait_until_listening(self, timeout_s: float) -> bool:
        """Wait until it listens; False if it ends before it does, or does not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        return self.listening

    async def wait_until_lost(self) -> str:
        """Wait until it is gone, or hangs; returns which."""
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
        """Wait for the process's end; whether it came in time."""
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

    def _take(self, message: FromWorker) -> None:
        match message:
            case Join() | Leave() | SubmitGeneration() | AbortGeneration():
                self.broker.take(message, asyncio.get_running_loop().time())
            case Listening():
                self.listening = True
                self._settled.set()
            case Attached():
                self._answered(message.error)

    def _answered(self, error: str | None) -> None:
        """To being let in; the answer may be late, about an engine that is gone by now."""
        if error is not None:
            self.attach_sent = self.attached = False
        elif self.attach_sent:
            self.attached = True
            self._on_attached()

    def _lost(self) -> None:
        self.gone.set()
        self._settled.set()


class EngineAttachments:
    """Synchronous. `attachment` is how the worker of a number speaks, given the last epoch of its; None while nobody can.

    `workers`: those that there are, by number.
    """

    def __init__(self, attachment: Callable[[int, int], Attach | None], workers: Mapping[int, WorkerProcess]) -> None:
        self._attachment, self._workers = attachment, workers
        self._epochs: dict[int, int] = {}
        """The last of each worker that is gone."""
        self.all_attached = False
        """There was a moment when every worker could speak through the present engine."""

    def look(self) -> None:
        """Let in who waits for it: the engine is up, or it was not reached the last time."""
        for worker in self._workers.values():
            self.attach(worker)

    def attach(self, worker: WorkerProcess) -> None:
        """Once there is an engine and the worker listens, and once for each engine."""
        if not worker.listening or worker.attach_sent:
            return
        if (attachment := self._attachment(worker.owner, self._last_epoch(worker))) is not None:
            worker.attach_sent = True
            worker.send(attachment)

    def worker_attached(self) -> None:
        """A worker can speak. Those that died on the way are not waited for, but their successors are."""
        self.all_attached |= all(worker.attached for worker in self._workers.values())

    def lost(self, reason: str) -> None:
        """The engine is gone, and everything that was lent of it."""
        self.all_attached = False
        for worker in self._workers.values():
            worker.attach_sent = worker.attached = False
            worker.broker.engine_lost()
            worker.send(Detach(reason))

    def gone(self, worker: WorkerProcess) -> None:
        """The worker is no more; the next of its number must not use its epochs again."""
        self._epochs[worker.owner] = self._last_epoch(worker)

    def _last_epoch(self, worker: WorkerProcess) -> int:
        return worker.broker.last_epoch or self._epochs.get(worker.owner, 0)
