"""Jobs in, sound out: the loop of every codec worker, whatever it decodes with.

Where the device works by itself, the next batch is launched before the one under way is over, so that it never waits
for us; and as late as that allows, so that who comes meanwhile is in it.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from voxgate.codecs.pcm import Pcm

from ..ipc.codec_wire import AnswerKind, CodecDescription, CodecWorkerOptions, Job
from ..step_times import StepTimer
from .channels import JobChannel, JobChannels, QueuedJob

DECODE_ERRORS = (RuntimeError, IndexError, ValueError)
"""What a decoder raises that is no fault of this program."""
MARGIN_S = 0.0004
"""A batch is launched so long before the one under way is expected to be over."""
LOOK_S = 0.0003
"""When it takes longer than expected, whether it is over is asked so often."""


class PendingBatch(Protocol):
    """A batch under way."""

    @property
    def over(self) -> bool:
        """Whether `pcm` returns at once."""

    def pcm(self) -> Pcm:
        """float32 [rows, samples], to be read before the next but one is launched; waits for it. Raises DECODE_ERRORS."""

    @property
    def seconds(self) -> float:
        """How long it took by itself, known when it is over."""


class FinishedBatch:
    """One that was decoded at once."""

    over = True

    def __init__(self, pcm: Pcm, seconds: float) -> None:
        self._pcm, self.seconds = pcm, seconds

    def pcm(self) -> Pcm:
        return self._pcm


class CodecDimensions(Protocol):
    """Of a codec: what an `CodecDescription` tells."""

    @property
    def codebook_size(self) -> int: ...
    @property
    def books(self) -> int: ...
    @property
    def frame_samples(self) -> int: ...


class BatchDecoder(Protocol):
    """What decodes jobs, one after another; `ahead`: how many may be under way."""

    @property
    def decoder(self) -> CodecDimensions: ...

    @property
    def ahead(self) -> int: ...

    def launch(self, job: Job) -> PendingBatch:
        """Begin with the next job. Raises DECODE_ERRORS; then no slot has moved on."""


@dataclass(frozen=True, slots=True)
class _BatchInFlight:
    batch: list[QueuedJob]
    job: Job
    decoding: PendingBatch


def _shape(job: Job) -> tuple[int, int]:
    """Batches of one shape take about the same time: rows in eights, frames."""
    rows, frames, _ = job.codes.shape
    return (rows + 7) // 8, frames


@torch.inference_mode()
def run_worker_loop(channel: socket.socket, worker: BatchDecoder, options: CodecWorkerOptions) -> None:
    """Answer jobs, those that fit together in one batch, until the socket of the service's own process closes."""
    decoder = worker.decoder
    about = CodecDescription(decoder.codebook_size, decoder.books, decoder.frame_samples)
    greeting = json.dumps(asdict(about)).encode()
    channels = JobChannels(channel, options.jobs_address if options.shared else None, greeting, decoder.books)
    channels.owner.answer(AnswerKind.READY, 0, greeting)
    try:
        _WorkerLoop(channels, worker, options).run()
    finally:
        channels.close()


class _WorkerLoop:
    def __init__(self, channels: JobChannels, worker: BatchDecoder, options: CodecWorkerOptions) -> None:
        self._channels, self._worker = channels, worker
        self._max_rows, self._max_frames = options.max_rows, options.batch_frames
        self._under_way: deque[_BatchInFlight] = deque()
        self._timer: StepTimer[tuple[int, int]] = StepTimer()

    def run(self) -> None:
        while self._channels.owner.open:
            if len(self._under_way) < self._worker.ahead and (batch := self._next_batch()):
                self._launch(batch)
            elif self._under_way and (len(self._under_way) == self._worker.ahead or self._under_way[0].decoding.over):
                self._answer(self._under_way.popleft())

    def _next_batch(self) -> list[QueuedJob]:
        """Empty when there is none yet, and one under way may be over."""
        if not self._under_way:
            return self._channels.next_batch(self._max_rows, self._max_frames)
        end_s = self._timer.expected_end_s()
        gather_s = 0.0 if end_s is None else max(0.0, end_s - MARGIN_S - time.monotonic())
        return self._channels.next_batch(self._max_rows, self._max_frames, gather_s, LOOK_S)

    def _launch(self, batch: list[QueuedJob]) -> None:
        jobs = [asked.job for asked in batch]
        job = jobs[0] if len(jobs) == 1 else Job.joined(jobs)
        if not job.slots:
            for asked in batch:
                asked.channel.answer(AnswerKind.PCM, asked.job.serial)
            return
        launched_s = time.monotonic()
        try:
            decoding = self._worker.launch(job)
        except DECODE_ERRORS as error:
            _fail(batch, error)
            return
        self._under_way.append(_BatchInFlight(batch, job, decoding))
        self._timer.ordered(job, launched_s, _shape(job))
        self._timer.launched(launched_s)

    def _answer(self, done: _BatchInFlight) -> None:
        try:
            pcm = done.decoding.pcm()
        except DECODE_ERRORS as error:
            _fail(done.batch, error)
            return
        seconds = done.decoding.seconds
        self._timer.finished(done.job, time.monotonic(), seconds)
        first = 0
        for asked in done.batch:
            rows = len(asked.job.slots)
            asked.channel.answer_sound(asked.job, pcm[first : first + rows], seconds)
            first += rows
        owner: JobChannel = self._channels.owner
        if any(asked.channel is not owner for asked in done.batch):
            owner.answer(AnswerKind.TOOK, len(done.job.slots) * done.job.codes.shape[1], b"", seconds)


def _fail(batch: list[QueuedJob], error: Exception) -> None:
    for asked in batch:
        asked.channel.answer(AnswerKind.FAILED, asked.job.serial, f"{type(error).__name__}: {error}".encode())
