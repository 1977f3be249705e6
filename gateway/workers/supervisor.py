"""Keeps the worker processes: one of each number, another when one is lost, none once the gateway is told to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.ipc.engine_messages import Message

from ..engine import RestartBackoff
from ..shutdown import PROCESS_GRACE_S
from .messages import Drain
from .worker_process import WorkerProcess

START_TIMEOUT_S = 60.0
"""A worker has to listen by then."""

log = logging.getLogger(__name__)


class WorkerDelegate(Protocol):
    """What the supervisor asks of whoever the workers are for."""

    def make(self, owner: int) -> WorkerProcess:
        """A worker of that number, not started yet."""

    async def start(self, worker: WorkerProcess) -> None:
        """Raises OSError."""

    def settled(self, worker: WorkerProcess) -> None:
        """It listens."""

    def gone(self, worker: WorkerProcess) -> None:
        """Its process is no more: everything it held can be given back."""


class Supervisor:
    """From `open` until `close`; belongs to the event loop. `owners`: the workers' numbers."""

    def __init__(self, owners: Iterable[int], delegate: WorkerDelegate) -> None:
        self.workers: dict[int, WorkerProcess] = {}
        """Those that there are, by number."""
        self.draining = False
        """Nothing new is taken, and nobody who is lost is replaced."""
        self._owners, self._delegate = tuple(owners), delegate
        self._keeping: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Returns when every worker listens. Raises EngineError or OSError when one does not come to."""
        loop = asyncio.get_running_loop()
        first = [loop.create_future() for _ in self._owners]
        self._keeping = [
            loop.create_task(self._keep(owner, listens), name=f"worker {owner}")
            for owner, listens in zip(self._owners, first, strict=True)
        ]
        await asyncio.gather(*first)

    def send_all(self, message: Message) -> None:
        for worker in self.workers.values():
            worker.send(message)

    async def drain(self, deadline_s: float) -> None:
        """Have the workers take nothing new, and end when all is said or the deadline has passed."""
        self.draining = True
        self.send_all(Drain(deadline_s))
        await asyncio.gather(*(worker.ended(deadline_s + PROCESS_GRACE_S) for worker in self.workers.values()))

    async def close(self) -> None:
        """Kill those that are left. Safe to call twice."""
        keeping, self._keeping = self._keeping, []
        for task in keeping:
            task.cancel()
        if keeping:
            await asyncio.wait(keeping)
        await asyncio.gather(*(worker.kill() for worker in self.workers.values()))

    async def _keep(self, owner: int, listens: asyncio.Future[None]) -> None:
        """Have a worker of that number, always; `listens` is set when the first one does, or to why it does not."""
        loop, restarts = asyncio.get_running_loop(), RestartBackoff()
        while not self.draining:
            worker = self.workers[owner] = self._delegate.make(owner)
            fate = "did not start"
            try:
                await self._delegate.start(worker)
                await self._settle_in(worker)
                restarts.on_ready(loop.time())
                if not listens.done():
                    listens.set_result(None)
                fate = await worker.wait_until_lost()
            except Exception as error:
                # Another is started whatever it was, and who waits for the first is told.
                expected = isinstance(error, OSError | EngineError)
                log.error("a worker did not start: %s", error, exc_info=None if expected else error)
                if not listens.done():
                    listens.set_exception(error)
            finally:
                if fate == "died":
                    # What is left to one that has closed its end is to send its last traces.
                    await worker.ended(PROCESS_GRACE_S)
                await worker.kill()
                del self.workers[owner]
                self._delegate.gone(worker)
            if not self.draining:
                pause_s = restarts.on_lost(loop.time())
                log.error("worker %d %s, its sockets are lost; another starts in %g s", owner, fate, pause_s)
                await asyncio.sleep(pause_s)

    async def _settle_in(self, worker: WorkerProcess) -> None:
        """Raises EngineError when the worker does not come to listen."""
        if not await worker.wait_until_listening(START_TIMEOUT_S):
            raise EngineError("a worker process did not come to listen")
        self._delegate.settled(worker)
        if self.draining:
            worker.send(Drain(0.0))
