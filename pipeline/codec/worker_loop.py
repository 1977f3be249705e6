"""The loop of every codec worker: receives jobs, decodes them in batches, answers.

A device works by itself, so the next batch is launched before the one in flight is done and the device never waits for
the host; and it is launched as late as that allows, so that jobs that arrive meanwhile are in it.
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

from ..ipc.codec_wire import AnswerKind, CodecDescription, CodecWorkerOptions, Job, JobKind
from ..step_times import StepTimer
from .channels import JobChannels, QueuedJob

DECODE_ERRORS = (RuntimeError, IndexError, ValueError)
"""What a decoder raises for codes that it cannot decode, unless it is one of DEVICE_ERRORS: the job fails."""
DEVICE_ERRORS = (torch.OutOfMemoryError, torch.AcceleratorError)
"""Kinds of RuntimeError after which the device decodes nothing more, or too little: the worker ends."""
MARGIN_S = 0.0004
"""A batch is launched this long before the one in flight is expected to be done."""
POLL_S = 0.0003
"""Interval of checking whether a batch is done that takes longer than expected."""


class PendingBatch(Protocol):
    """A batch in flight."""

    @property
    def done(self) -> bool:
        """Whether `pcm` returns at once."""

    def pcm(self) -> Pcm:
        """Waits for the batch, and returns float32 [rows, samples]. Raises DECODE_ERRORS.

        The array must be read before the next but one batch is launched.
        """

    @property
    def seconds(self) -> float:
        """Duration on the device; known when the batch is done."""


class FinishedBatch:
    """A `PendingBatch` that was decoded when it was launched."""

    done = True

    def __init__(self, pcm: Pcm, seconds: float) -> None:
        self._pcm, self.seconds = pcm, seconds

    def pcm(self) -> Pcm:
        return self._pcm


class CodecDimensions(Protocol):
    """The numbers of a codec that its `CodecDescription` holds."""

    @property
    def codebook_size(self) -> int: ...
    @property
    def codebooks(self) -> int: ...
    @property
    def frame_samples(self) -> int: ...
    @property
    def context_frames(self) -> int: ...


class BatchDecoder(Protocol):
    """Decodes jobs in the order of their launches; `max_in_flight` of them may be in flight."""

    @property
    def decoder(self) -> CodecDimensions: ...

    @property
    def max_in_flight(self) -> int: ...

    def launch(self, job: Job) -> PendingBatch:
        """Begins with a job. Raises DECODE_ERRORS; then no slot has advanced."""

    def keep(self, slot: int, key: bytes) -> None:
        """Keeps the state of the stream in `slot` under `key`, behind the jobs launched so far."""

    def restore(self, slot: int, key: bytes) -> bool:
        """Lets the next job of `slot` continue from the state under `key`; False when none is kept."""

    def yields(self, now_s: float) -> bool:
        """Whether jobs that can wait do so at `now_s`, by the monotonic clock, for utterances that begin."""


@torch.inference_mode()
def run_worker_loop(channel: socket.socket, worker: BatchDecoder, options: CodecWorkerOptions) -> None:
    """Answers jobs until the other end of `channel`, the socket of the process that owns the worker, closes.

    Raises DEVICE_ERRORS when the device fails.
    """
    decoder = worker.decoder
    description = CodecDescription(
        decoder.codebook_size, decoder.codebooks, decoder.frame_samples, options.codec_mode, decoder.context_frames
    )
    greeting = json.dumps(asdict(description)).encode()
    channels = JobChannels(channel, options.jobs_address if options.shared else None, greeting, decoder.codebooks)
    channels.owner.answer(AnswerKind.READY, 0, greeting)
    try:
        _WorkerLoop(channels, worker, options).run()
    finally:
        channels.close()


@dataclass(frozen=True, slots=True)
class _BatchInFlight:
    jobs: list[QueuedJob]
    job: Job
    """All jobs of the batch as one."""
    pending: PendingBatch


class _WorkerLoop:
    def __init__(self, channels: JobChannels, worker: BatchDecoder, options: CodecWorkerOptions) -> None:
        self._channels, self._worker = channels, worker
        self._max_rows, self._max_frames = options.max_rows, options.max_frames
        self._in_flight: deque[_BatchInFlight] = deque()
        self._timer: StepTimer[tuple[int, int]] = StepTimer()

    def run(self) -> None:
        limit = self._worker.max_in_flight
        while self._channels.owner.open:
            if len(self._in_flight) < limit and (batch := self._next_batch()):
                self._launch(batch)
            elif self._in_flight and (len(self._in_flight) == limit or self._in_flight[0].pending.done):
                self._answer(self._in_flight.popleft())

    def _next_batch(self) -> list[QueuedJob]:
        """Returns the next batch; empty when there is none yet and a batch in flight may be done."""
        if not self._in_flight:
            return self._channels.next_batch(self._max_rows, self._max_frames, yields=self._worker.yields)
        end_s = self._timer.expected_end_s()
        gather_s = 0.0 if end_s is None else max(0.0, end_s - MARGIN_S - time.monotonic())
        return self._channels.next_batch(self._max_rows, self._max_frames, gather_s, POLL_S, self._worker.yields)

    def _launch(self, batch: list[QueuedJob]) -> None:
        jobs = [queued.job for queued in batch]
        job = jobs[0] if len(jobs) == 1 else Job.joined(jobs)
        if not job.codes.shape[1]:
            for queued in batch:
                queued.channel.answer(self._answer_without_frames(queued.job), queued.job.serial)
            return
        launched_s = time.monotonic()
        try:
            pending = self._worker.launch(job)
        except DEVICE_ERRORS:
            raise
        except DECODE_ERRORS as error:
            _fail(batch, error)
            return
        self._in_flight.append(_BatchInFlight(batch, job, pending))
        self._timer.ordered(job, launched_s, _shape(job))
        self._timer.launched(launched_s)

    def _answer_without_frames(self, job: Job) -> AnswerKind:
        """Does what a job asks for that decodes nothing."""
        if job.kind is JobKind.RESTORE:
            return AnswerKind.RESTORED if self._worker.restore(job.slots[0], job.key) else AnswerKind.MISSING
        if job.kind is JobKind.KEEP:
            self._worker.keep(job.slots[0], job.key)
        return AnswerKind.PCM

    def _answer(self, batch: _BatchInFlight) -> None:
        try:
            pcm = batch.pending.pcm()
        except DEVICE_ERRORS:
            raise
        except DECODE_ERRORS as error:
            _fail(batch.jobs, error)
            return
        seconds = batch.pending.seconds
        self._timer.finished(batch.job, time.monotonic(), seconds)
        first = 0
        for queued in batch.jobs:
            rows = len(queued.job.slots)
            queued.channel.answer_pcm(queued.job, pcm[first : first + rows], seconds)
            first += rows
        owner = self._channels.owner
        if any(queued.channel is not owner for queued in batch.jobs):
            owner.answer(AnswerKind.TOOK, len(batch.job.slots) * batch.job.codes.shape[1], b"", seconds)


def _shape(job: Job) -> tuple[int, int]:
    """Returns the shape by which batches are timed: rows in steps of eight, and frames."""
    rows, frames, _ = job.codes.shape
    return (rows + 7) // 8, frames


def _fail(batch: list[QueuedJob], error: Exception) -> None:
    for queued in batch:
        queued.channel.answer(AnswerKind.FAILED, queued.job.serial, f"{type(error).__name__}: {error}".encode())
