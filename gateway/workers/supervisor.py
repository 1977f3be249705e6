"""Keeps one worker process of each number running until the gateway shuts down."""

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
"""Seconds in which a worker must listen."""

log = logging.getLogger(__name__)


class WorkerDelegate(Protocol):
    """The owner of the workers, which makes and starts them."""

    def make(self, owner: int) -> WorkerProcess:
        """Makes the worker of a number without starting it."""

    async def start(self, worker: WorkerProcess) -> None:
        """Starts it. Raises OSError."""

    def settled(self, worker: WorkerProcess) -> None:
        """The worker listens."""

    def gone(self, worker: WorkerProcess) -> None:
        """The process has ended; everything it held can be released."""


class Supervisor:
    """Starts and restarts workers from `open` until `close`. `owners` are their numbers."""

    def __init__(self, owners: Iterable[int], delegate: WorkerDelegate) -> None:
        self.workers: dict[int, WorkerProcess] = {}
        """Current workers by number."""
        self.draining = False
        """Whether the gateway is shutting down; lost workers are not replaced then."""
        self._owners, self._delegate = tuple(owners), delegate
        self._keeping: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Starts all workers; returns when they listen. Raises EngineError or OSError when one does not."""
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
        """Makes workers refuse new speech and end when theirs is finished, at the latest after `deadline_s` seconds."""
        self.draining = True
        self.send_all(Drain(deadline_s))
        await asyncio.gather(*(worker.ended(deadline_s + PROCESS_GRACE_S) for worker in self.workers.values()))

    async def close(self) -> None:
        """Kills the remaining workers. Safe to call twice."""
        keeping, self._keeping = self._keeping, []
        for task in keeping:
            task.cancel()
        if keeping:
            await asyncio.wait(keeping)
        await asyncio.gather(*(worker.kill() for worker in self.workers.values()))

    async def _keep(self, owner: int, listens: asyncio.Future[None]) -> None:
        """Keeps a worker of one number running; `listens` gets the result of the first start."""
        loop, restarts = asyncio.get_running_loop(), RestartBackoff()
        while not self.draining:
            worker = self.workers[owner] = self._delegate.make(owner)
            fate = "did not start"
            try:
                await self._delegate.start(worker)
                await self._wait_until_listening(worker)
                restarts.on_ready(loop.time())
                if not listens.done():
                    listens.set_result(None)
                fate = await worker.wait_until_lost()
            except Exception as error:
                # A failed worker is replaced whatever the error; `open` raises that of the first start.
                expected = isinstance(error, OSError | EngineError)
                log.error("starting a worker failed: %s", error, exc_info=None if expected else error)
                if not listens.done():
                    listens.set_exception(error)
            finally:
                if fate == "died":
                    # A worker that closed its link may still be sending its last traces.
                    await worker.ended(PROCESS_GRACE_S)
                await worker.kill()
                del self.workers[owner]
                self._delegate.gone(worker)
            if not self.draining:
                pause_s = restarts.on_lost(loop.time())
                log.error("worker %d %s, its sockets are lost; restarting it in %g s", owner, fate, pause_s)
                await asyncio.sleep(pause_s)

    async def _wait_until_listening(self, worker: WorkerProcess) -> None:
        """Raises EngineError when the worker ends or does not listen in time."""
        if not await worker.wait_until_listening(START_TIMEOUT_S):
            if worker.gone.is_set():
                raise EngineError("worker ended before it listened")
            raise EngineError(f"worker did not start listening within {START_TIMEOUT_S:g} s")
        self._delegate.settled(worker)
        if self.draining:
            worker.send(Drain(0.0))
