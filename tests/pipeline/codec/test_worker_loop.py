"""Launches and answers of the worker loop, with a device whose batches are done when the test says so."""

from __future__ import annotations

import math
import socket
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fakes.waiting import DEADLINE_S
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.codec import channels
from voxgate.pipeline.codec.worker_loop import FinishedBatch, run_worker_loop
from voxgate.pipeline.ipc.codec_wire import ANSWER_HEADER, AnswerKind, CodecWorkerOptions, Job, JobKind
from voxgate.pipeline.ipc.pcm_buffers import SharedPcmBuffers

CODEBOOKS = 16
OPTIONS = CodecWorkerOptions(
    checkpoint_dir="", slots=8, codec_mode="stateful", left_context=0, threads=1, max_rows=8, max_frames=8,
    socket_fd=-1, parent_pid=0,
)  # fmt: skip  # one argument list


def job(serial: int, *slots: int) -> Job:
    codes = np.full((len(slots), 1, CODEBOOKS), serial, np.int16)
    return Job(serial, slots, (False,) * len(slots), codes, buffer=serial % 4)


@dataclass
class Device:
    """Takes two batches at a time; each release of `finish` completes one."""

    max_in_flight: int = 2
    decoder: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            codebook_size=512, codebooks=CODEBOOKS, frame_samples=FRAME_SAMPLES, context_frames=2
        )
    )
    finish: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    launched: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    kept: dict[bytes, int] = field(default_factory=dict)
    begins: bool = False
    """Whether an utterance begins."""

    def keep(self, slot: int, key: bytes) -> None:
        self.kept[key] = slot

    def restore(self, slot: int, key: bytes) -> bool:  # noqa: ARG002 - slots have no state here
        return key in self.kept

    def yields(self, _: float) -> bool:
        return self.begins

    def launch(self, job: Job) -> Batch:
        if job.serial == 13:
            raise ValueError("thirteen")
        self.launched.release()
        return Batch(self, job)


@dataclass
class Batch:
    device: Device
    job: Job

    seconds: float = 0.001

    @property
    def done(self) -> bool:
        return self.device.finish._value > 0

    def pcm(self) -> np.ndarray:
        assert self.device.finish.acquire(timeout=DEADLINE_S)
        return np.full((len(self.job.slots), FRAME_SAMPLES), self.job.serial, np.float32)


class Owner:
    """The process that owns the worker, at the other end of its socket."""

    def __init__(self, device: object) -> None:
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(DEADLINE_S)
        self.memory = SharedPcmBuffers.create(4, 8)
        self.memory.send_to(self.sock)
        self._thread = threading.Thread(target=run_worker_loop, args=(theirs, device, OPTIONS), daemon=True)
        self._thread.start()
        assert self.answer()[0] is AnswerKind.READY

    def ask(self, job: Job) -> None:
        self.sock.send(job.pack())

    def answer(self) -> tuple[AnswerKind, int]:
        kind, serial, _, length = ANSWER_HEADER.unpack(self.sock.recv(ANSWER_HEADER.size, socket.MSG_WAITALL))
        if length:
            self.sock.recv(length, socket.MSG_WAITALL)
        return AnswerKind(kind), serial

    def sound(self, job: Job) -> float:
        pcm = self.memory.read(job.buffer, len(job.slots), FRAME_SAMPLES)
        assert (pcm == pcm[0, 0]).all()
        return float(pcm[0, 0])

    def close(self) -> None:
        self.sock.close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_next_batch_is_launched_before_the_one_in_flight_is_done() -> None:
    device = Device()
    owner = Owner(device)
    first, second = job(1, 0), job(2, 1, 2)
    owner.ask(first)
    assert device.launched.acquire(timeout=DEADLINE_S)
    owner.ask(second)
    assert device.launched.acquire(timeout=DEADLINE_S), "nothing was over yet"
    device.finish.release()
    assert owner.answer() == (AnswerKind.PCM, 1)
    device.finish.release()
    assert owner.answer() == (AnswerKind.PCM, 2)
    assert (owner.sound(first), owner.sound(second)) == (1.0, 2.0)
    owner.close()


def test_done_batch_is_answered_while_the_next_one_waits_for_an_utterance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "YIELD_S", math.inf)
    device = Device()
    owner = Owner(device)
    owner.ask(job(1, 0))
    assert device.launched.acquire(timeout=DEADLINE_S)
    device.begins = True
    owner.ask(job(2, 1))
    device.finish.release()
    assert owner.answer() == (AnswerKind.PCM, 1)
    assert not device.launched.acquire(blocking=False)
    owner.ask(job(3, 2))
    device.begins = False
    for _ in range(2):
        device.finish.release()
    assert {owner.answer(), owner.answer()} == {(AnswerKind.PCM, 2), (AnswerKind.PCM, 3)}
    owner.close()


def test_done_batch_is_answered_without_a_next_one() -> None:
    device = Device()
    owner = Owner(device)
    for serial in (1, 2):
        owner.ask(job(serial, 0))
        device.finish.release()
        assert owner.answer() == (AnswerKind.PCM, serial)
    owner.close()


def test_undecodable_job_fails_alone() -> None:
    device = Device()
    owner = Owner(device)
    owner.ask(job(13, 0))
    assert owner.answer() == (AnswerKind.FAILED, 13)
    owner.ask(job(1, 0))
    device.finish.release()
    assert owner.answer() == (AnswerKind.PCM, 1)
    owner.close()


@pytest.mark.parametrize("at_launch", [True, False])
def test_device_out_of_memory_ends_the_worker(at_launch: bool) -> None:
    class Exhausted(Device):
        def launch(self, job: Job) -> Batch:
            if at_launch:
                raise torch.OutOfMemoryError("no memory")
            return ExhaustedBatch(self, job)

    class ExhaustedBatch(Batch):
        def pcm(self) -> np.ndarray:
            raise torch.OutOfMemoryError("no memory")

    ours, theirs = socket.socketpair()
    SharedPcmBuffers.create(4, 8).send_to(ours)
    ours.send(job(1, 0).pack())
    with pytest.raises(torch.OutOfMemoryError):
        run_worker_loop(theirs, Exhausted(max_in_flight=1), OPTIONS)
    ours.settimeout(DEADLINE_S)
    greeting = ours.recv(1 << 16)
    assert greeting[0] == AnswerKind.READY
    assert ours.recv(1 << 16) == b"", "the socket is closed and the job has no answer"


def test_waiting_jobs_share_a_batch_and_empty_job_is_answered() -> None:
    batches: list[tuple[int, ...]] = []

    class AtOnce(Device):
        def launch(self, job: Job) -> FinishedBatch:  # type: ignore[override]  # decoded by itself
            batches.append(job.slots)
            return FinishedBatch(job.codes[:, :, 0].repeat(FRAME_SAMPLES, 1).astype(np.float32), 0.001)

    owner = Owner(AtOnce(max_in_flight=1))
    one, other = job(1, 0), job(2, 1)
    owner.sock.send(one.pack() + other.pack())
    assert [owner.answer(), owner.answer()] == [(AnswerKind.PCM, 1), (AnswerKind.PCM, 2)]
    assert batches == [(0, 1)]
    assert (owner.sound(one), owner.sound(other)) == (1.0, 2.0)
    owner.ask(Job(3, (), (), np.zeros((0, 0, CODEBOOKS), np.int16)))
    assert owner.answer() == (AnswerKind.PCM, 3)
    owner.close()


def test_jobs_on_states_are_answered_before_chunks_in_flight_are_done() -> None:
    device, one, other = Device(), bytes(16), bytes(range(16))
    owner = Owner(device)
    owner.ask(job(1, 0))
    assert device.launched.acquire(timeout=DEADLINE_S)
    for serial, kind, key in (
        (2, JobKind.RESTORE, one), (3, JobKind.KEEP, one), (4, JobKind.RESTORE, one), (5, JobKind.RESTORE, other)
    ):  # fmt: skip  # a table
        owner.ask(Job.on_state(kind, serial, 3, key, CODEBOOKS))
    answers = [owner.answer() for _ in range(4)]
    assert answers == [(AnswerKind.MISSING, 2), (AnswerKind.PCM, 3), (AnswerKind.RESTORED, 4), (AnswerKind.MISSING, 5)]
    assert device.kept == {one: 3}
    device.finish.release()
    assert owner.answer() == (AnswerKind.PCM, 1)
    owner.close()
