"""One worker of each number, always: with workers that are no processes, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from fakes.virtual_time import run
from voxgate.gateway.engine import FIRST_PAUSE_S
from voxgate.gateway.workers.messages import Drain
from voxgate.gateway.workers.supervisor import START_TIMEOUT_S, Supervisor
from voxgate.gateway.workers.worker_process import WorkerProcess
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.ipc.engine_messages import Message


class Worker:
    """Listens once it is started, unless it is `never_listens`; lives until `died`."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.never_listens = False
        self.said: list[Message] = []
        self.died = self.gone = asyncio.Event()

    def send(self, message: Message) -> None:
        self.said.append(message)
        if isinstance(message, Drain):
            self.died.set()

    async def wait_until_listening(self, timeout_s: float) -> bool:
        await asyncio.sleep(timeout_s if self.never_listens else 0.1)
        return not self.never_listens

    async def wait_until_lost(self) -> str:
        await self.died.wait()
        return "died"

    async def ended(self, timeout_s: float) -> bool:
        async with asyncio.timeout(timeout_s):
            await self.died.wait()
        return True

    async def kill(self) -> None:
        self.died.set()


class WorkerDelegate:
    """Records workers that were made, that listen and that have ended."""

    def __init__(self) -> None:
        self.made: list[Worker] = []
        self.inside: list[Worker] = []
        self.error: Exception | None = None
        self.never_listens = False

    def make(self, owner: int) -> WorkerProcess:
        self.made.append(worker := Worker(owner))
        worker.never_listens = self.never_listens
        return cast(WorkerProcess, worker)

    async def start(self, worker: WorkerProcess) -> None:
        assert worker in cast(list[Any], self.made)
        if self.error is not None:
            raise self.error

    def settled(self, worker: WorkerProcess) -> None:
        self.inside.append(cast(Any, worker))

    def gone(self, worker: WorkerProcess) -> None:
        if worker in cast(Any, self.inside):
            self.inside.remove(cast(Any, worker))


def test_lost_worker_is_replaced_at_once_then_after_a_delay() -> None:
    async def scene() -> None:
        supervisor = Supervisor((1, 2), house := WorkerDelegate())
        await supervisor.open()
        first, other = house.inside
        first.died.set()
        await asyncio.sleep(0.2)
        second = house.made[-1]
        assert (second.owner, house.inside) == (1, [other, second])
        assert supervisor.workers == {1: second, 2: other}
        second.died.set()
        await asyncio.sleep(FIRST_PAUSE_S - 0.1)
        assert house.inside == [other]
        await asyncio.sleep(0.3)
        assert house.made[-1] in house.inside
        await supervisor.close()

    run(scene())


def test_lost_workers_are_not_replaced_during_a_drain() -> None:
    async def scene() -> None:
        supervisor = Supervisor((1, 2), house := WorkerDelegate())
        await supervisor.open()
        await supervisor.drain(7.0)
        await asyncio.sleep(100)
        assert [worker.said for worker in house.made] == [[Drain(7.0)]] * 2
        assert supervisor.workers == {}
        assert house.inside == []
        await supervisor.close()

    run(scene())


def test_worker_started_during_a_drain_ends_at_once() -> None:
    async def scene() -> None:
        supervisor = Supervisor((1,), house := WorkerDelegate())
        await supervisor.open()
        house.made[0].died.set()
        await asyncio.sleep(0.05)  # its successor does not listen yet
        supervisor.draining = True
        await asyncio.sleep(1)
        assert house.made[1].said == [Drain(0.0)]
        assert supervisor.workers == {}

    run(scene())


@pytest.mark.parametrize("error", [OSError("no such file"), EngineError("no memory"), ValueError("a defect")])
def test_open_raises_the_error_of_the_first_start(error: Exception) -> None:
    async def scene() -> None:
        house = WorkerDelegate()
        house.error = error
        supervisor = Supervisor((1,), house)
        with pytest.raises(type(error), match=str(error)):
            await supervisor.open()
        house.error = None
        await asyncio.sleep(1)
        assert [worker.owner for worker in house.inside] == [1], "another was started"
        await supervisor.close()

    run(scene())


def test_worker_that_never_listens_has_failed_to_start() -> None:
    async def scene() -> None:
        house = WorkerDelegate()
        house.never_listens = True
        supervisor = Supervisor((1,), house)
        with pytest.raises(EngineError, match="did not start listening"):
            await supervisor.open()
        assert asyncio.get_running_loop().time() == pytest.approx(START_TIMEOUT_S)
        await supervisor.close()
        assert (supervisor.workers, house.inside) == ({}, [])

    run(scene())
