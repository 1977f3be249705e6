"""Who is let in to the engine, and when everybody is."""

from __future__ import annotations

from typing import Any, cast

from voxgate.gateway.workers.worker_process import EngineAttachments, WorkerProcess
from voxgate.pipeline.ipc.engine_messages import Attach, Attached, Detach, Message


class Broker:
    last_epoch = 0
    losses = 0

    def engine_lost(self) -> None:
        self.losses += 1


class House:
    """Two workers that listen, and an engine that may be there."""

    def __init__(self) -> None:
        self.engine = True
        self.workers: dict[int, WorkerProcess] = {}
        self.said: dict[int, list[Message]] = {}
        self.attachments = EngineAttachments(self._attachment, self.workers)
        for owner in (1, 2):
            self.hire(owner)

    def hire(self, owner: int) -> WorkerProcess:
        said = self.said[owner] = []
        worker = WorkerProcess(owner, lambda _: cast(Any, Broker()), cast(Any, None), self.attachments.worker_attached)
        worker.listening = True
        worker.send = said.append  # type: ignore[method-assign]  # no process, no link
        self.workers[owner] = worker
        return worker

    def answer(self, owner: int, error: str | None = None) -> None:
        self.workers[owner]._take(Attached(error))

    def _attachment(self, owner: int, last_epoch: int) -> Attach | None:
        return Attach(owner, last_epoch, "", (), "", "", "", 1, 1) if self.engine else None


def test_each_is_let_in_once_and_all_are_in_when_all_have_answered() -> None:
    house = House()
    house.attachments.look()
    house.attachments.look()
    assert [len(said) for said in house.said.values()] == [1, 1]
    house.answer(1)
    assert not house.attachments.all_attached
    house.answer(2)
    assert house.attachments.all_attached


def test_one_that_is_cut_off_is_let_in_again() -> None:
    house = House()
    house.attachments.look()
    house.answer(1)
    house.answer(1, "cut off")
    house.answer(2)
    assert not house.attachments.all_attached
    house.attachments.look()
    assert [len(said) for said in house.said.values()] == [2, 1]
    house.answer(1)
    assert house.attachments.all_attached


def test_another_engine_is_another_entrance() -> None:
    house = House()
    house.attachments.look()
    for owner in house.workers:
        house.answer(owner)
    house.engine = False
    house.attachments.lost("it died")
    house.attachments.look()
    assert not house.attachments.all_attached
    assert [said[1:] for said in house.said.values()] == [[Detach("it died")]] * 2
    assert all(cast(Any, worker.broker).losses == 1 for worker in house.workers.values())
    house.answer(1)  # late, about the engine that is gone
    assert not house.workers[1].attached
    house.engine = True
    house.attachments.look()
    assert all(isinstance(said[-1], Attach) for said in house.said.values())


def test_a_successor_goes_on_with_the_epochs_of_the_one_before() -> None:
    house = House()
    cast(Any, house.workers[2].broker).last_epoch = 130
    house.attachments.gone(house.workers.pop(2))
    for _ in range(2):  # the second dies before it has spoken
        house.hire(2)
        house.attachments.look()
        assert house.said[2] == [Attach(2, 130, "", (), "", "", "", 1, 1)]
        house.attachments.gone(house.workers.pop(2))


def test_one_that_does_not_listen_yet_is_not_let_in() -> None:
    house = House()
    house.workers[1].listening = False
    house.attachments.look()
    assert [len(said) for said in house.said.values()] == [0, 1]
