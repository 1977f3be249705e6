"""Attachments of workers to the engine."""

from __future__ import annotations

from typing import Any, cast

from voxgate.gateway.workers.worker_process import EngineAttachments, WorkerProcess
from voxgate.pipeline.ipc.engine_messages import Attach, Attached, Detach, Message


class Broker:
    last_epoch = 0

    def __init__(self) -> None:
        self.calls: list[str] = []

    def engine_lost(self) -> None:
        self.calls.append("lost")

    def engine_attached(self) -> None:
        self.calls.append("attached")


class AttachedWorkers:
    """Two workers that listen, and an engine that may be there."""

    def __init__(self) -> None:
        self.engine = "reports of the first engine"
        """The address of its reports; empty without an engine."""
        self.workers: dict[int, WorkerProcess] = {}
        self.sent: dict[int, list[Message]] = {}
        self.attachments = EngineAttachments(self._attachment, self.workers)
        for owner in (1, 2):
            self.start(owner)

    def start(self, owner: int) -> WorkerProcess:
        sent = self.sent[owner] = []
        worker = WorkerProcess(owner, lambda _: cast(Any, Broker()), cast(Any, None), self.attachments.worker_attached)
        worker.listening = True
        worker.send = sent.append  # type: ignore[method-assign]  # no process, no link
        self.workers[owner] = worker
        return worker

    def answer(self, owner: int, error: str | None = None, engine: str | None = None) -> None:
        self.workers[owner]._on_message(Attached(engine or self.engine, error))

    def _attachment(self, owner: int, last_epoch: int) -> Attach | None:
        return Attach(owner, last_epoch, "", (), self.engine, "", "", 1, 1) if self.engine else None


def test_each_worker_is_attached_once_and_all_are_attached_when_all_have_answered() -> None:
    setup = AttachedWorkers()
    setup.attachments.attach_all()
    setup.attachments.attach_all()
    assert [len(sent) for sent in setup.sent.values()] == [1, 1]
    setup.answer(1)
    assert not setup.attachments.all_attached
    setup.answer(2)
    assert setup.attachments.all_attached


def test_detached_worker_is_attached_again() -> None:
    setup = AttachedWorkers()
    setup.attachments.attach_all()
    setup.answer(1)
    setup.answer(1, "cut off")
    setup.answer(2)
    assert not setup.attachments.all_attached
    setup.attachments.attach_all()
    assert [len(sent) for sent in setup.sent.values()] == [2, 1]
    setup.answer(1)
    assert setup.attachments.all_attached


def test_each_engine_needs_a_new_attachment() -> None:
    setup = AttachedWorkers()
    setup.attachments.attach_all()
    for owner in setup.workers:
        setup.answer(owner)
    first, setup.engine = setup.engine, ""
    setup.attachments.on_engine_lost("it died")
    setup.attachments.attach_all()
    assert not setup.attachments.all_attached
    assert [sent[1:] for sent in setup.sent.values()] == [[Detach("it died")]] * 2
    assert all(cast(Any, worker.broker).calls == ["attached", "lost"] for worker in setup.workers.values())
    setup.engine = "reports of the second engine"
    setup.attachments.attach_all()
    assert all(isinstance(sent[-1], Attach) for sent in setup.sent.values())
    for error in (None, "cut off"):  # late answers about the lost engine
        setup.answer(1, error, engine=first)
        assert not setup.workers[1].attached
        assert setup.workers[1].reports == setup.engine
    setup.answer(1)
    assert setup.workers[1].attached
    assert cast(Any, setup.workers[1].broker).calls == ["attached", "lost", "attached"]


def test_successor_continues_the_epochs_of_its_predecessor() -> None:
    setup = AttachedWorkers()
    cast(Any, setup.workers[2].broker).last_epoch = 130
    setup.attachments.on_worker_ended(setup.workers.pop(2))
    for _ in range(2):  # the second ends before its first generation
        setup.start(2)
        setup.attachments.attach_all()
        assert setup.sent[2] == [Attach(2, 130, "", (), setup.engine, "", "", 1, 1)]
        setup.attachments.on_worker_ended(setup.workers.pop(2))


def test_worker_that_does_not_listen_is_not_attached() -> None:
    setup = AttachedWorkers()
    setup.workers[1].listening = False
    setup.attachments.attach_all()
    assert [len(sent) for sent in setup.sent.values()] == [0, 1]
