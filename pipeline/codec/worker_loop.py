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
from .channels import JobChannel, JobChannels, QueuedJob

DECODE_ERRORS = (RuntimeError, IndexError, ValueError)
"""What a decoder raises that is no fault of this program."""
MARGIN_S = 0.0004
"""A batch is launched so long before the one under way is expected to be over."""
LOOK_S = 0.0003
"""When it takes longer than expected, whether it is over is asked so often."""
_KEPT = 8
"""Batches of a shape, the quickest of which tells when the next will be over."""


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
    launched_s: float


class BatchDurations:
    """When a batch will be over, by what those of its shape took."""

    def __init__(self) -> None:
        self._took: dict[tuple[int, int], deque[float]] = {}

    def record(self, job: Job, seconds: float) -> None:
        self._took.setdefault(_shape(job), deque(maxlen=_KEPT)).append(seconds)

    def least_s(self, job: Job) -> float:
        """0 where nothing is known."""
        return min(self._took.get(_shape(job), ()), default=0.0)


def _shape(job: Job) -> tuple[int, int]:
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
        self._times = BatchDurations()
        self._over_s = 0.0
        """When the last one was found to be over."""

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
        last = self._under_way[-1]
        due_s = max(last.launched_s, self._over_s) + self._times.least_s(last.job) - MARGIN_S
        gather_s = max(0.0, due_s - time.monotonic())
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
            self._under_way.append(_BatchInFlight(batch, job, self._worker.launch(job), launched_s))
        except DECODE_ERRORS as error:
            _fail(batch, error)

    def _answer(self, done: _BatchInFlight) -> None:
        try:
            pcm = done.decoding.pcm()
        except DECODE_ERRORS as error:
            _fail(done.batch, error)
            return
        self._over_s = time.monotonic()
        seconds = done.decoding.seconds
        self._times.record(done.job, seconds)
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
