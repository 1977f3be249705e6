"""The codec worker as a thread of the process that holds the GPU.

Kernels of two processes take turns on a GPU, milliseconds each; those of two streams of one process run side by side.
"""
# TODO-DOC The codec worker: a process of its own that holds every stream's state and decodes the batches it is given.
# TODO-DOC Started by the service as `python -m voxgate.pipeline.codec.worker OPTIONS`, with its end of a socket pair.
# TODO-DOC It never outlives the gateway: the kernel kills it with its parent, and on other systems it ends at the
# TODO-DOC closed socket.

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.stream_state import StreamState
from voxgate.codecs.neural.streaming import StreamingDecoder, load_streaming_decoder
from voxgate.codecs.pcm import Pcm

from ..ipc.codec_wire import ANSWER_HEADER, AnswerKind, CodecWorkerOptions, Job
from ..ipc.process_death import kill_with_parent
from .planner import usual_shapes
from .worker_loop import DECODE_ERRORS, FinishedBatch, run_worker_loop

if TYPE_CHECKING:
    from .gpu_worker import GpuBatchDecoder


THREAD_SWITCH_INTERVAL_S = 0.0005
"""How long the talker's Python may keep the codec's waiting."""


def serve_in_process(options: CodecWorkerOptions) -> GpuBatchDecoder | None:
    """Load in this thread, then announce it and serve from a thread of its own until the socket closes.

    Returns None when there is nothing to serve; why, the gateway is told.
    """
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(f"\0{options.address}")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        worker = load(channel, options)
    finally:
        torch.set_default_dtype(usual)
    if worker is None:
        return None

    def run() -> None:
        # The gateway may close in mid-answer, which is an end like any other.
        with suppress(BrokenPipeError, ConnectionResetError), channel:
            run_worker_loop(channel, worker, options)

    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    threading.Thread(target=run, name="codec", daemon=True).start()
    # Beside is on a GPU.
    return cast("GpuBatchDecoder", worker)


WARM_UP_ROUNDS = 2


@dataclass(slots=True)
class CpuBatchDecoder:
    """A streaming decoder with the state of all its slots."""

    decoder: StreamingDecoder
    slab: StreamState

    ahead = 1

    def launch(self, job: Job) -> FinishedBatch:
        """Decode it now; where it cannot be, each of its rows by itself. Raises DECODE_ERRORS."""
        began_s = time.monotonic()
        try:
            pcm = self.decode(job)
        except DECODE_ERRORS:
            pcm = self.decode_apart(job)
        return FinishedBatch(pcm, time.monotonic() - began_s)

    def decode(self, job: Job) -> Pcm:
        """float32 [rows, frames * 1920]. When it raises, no slot has moved on."""
        slots = torch.tensor(job.slots)
        fresh = [slot for slot, reset in zip(job.slots, job.resets, strict=True) if reset]
        if fresh:
            self.slab.reset(torch.tensor(fresh))
        codes = torch.from_numpy(job.codes.astype(np.int64))
        pcm, state = self.decoder.decode(codes, self.slab.take(slots))
        self.slab.put(slots, state)
        audio: Pcm = np.ascontiguousarray(pcm.numpy(), dtype=np.float32)
        return audio

    def decode_apart(self, job: Job) -> Pcm:
        """As `decode`, row by row: NaN for those that cannot be decoded. Raises when none can."""
        rows: list[Pcm] = []
        for row, (slot, reset) in enumerate(zip(job.slots, job.resets, strict=True)):
            try:
                rows.append(self.decode(Job(job.serial, (slot,), (reset,), job.codes[row : row + 1])))
            except DECODE_ERRORS as error:
                last = error
                print(f"codec: a stream cannot be decoded: {error!r}", file=sys.stderr, flush=True)
                rows.append(np.full((1, job.codes.shape[1] * self.decoder.frame_samples), np.nan, np.float32))
        if np.isnan(rows).all():
            raise last
        return np.concatenate(rows)

    def warm_up(self, max_rows: int, max_frames: int) -> None:
        """Run every usual shape, so that no listener pays for the first time."""
        for rows, frames in usual_shapes(max_rows, max_frames):
            state = self.slab.take(torch.arange(rows))
            for _ in range(WARM_UP_ROUNDS):
                self.decoder.decode(torch.zeros(rows, frames, self.decoder.books, dtype=torch.int64), state)


@torch.inference_mode()
def serve(channel: socket.socket, options: CodecWorkerOptions) -> None:
    """Load, warm up, announce, then answer jobs in order until the socket closes."""
    if (worker := load(channel, options)) is not None:
        run_worker_loop(channel, worker, options)


def load(channel: socket.socket, options: CodecWorkerOptions) -> CpuBatchDecoder | GpuBatchDecoder | None:
    """Load and warm up, or say why there is none."""
    try:
        return _worker(Path(options.checkpoint_dir), options)
    except (CodecFormatError, RuntimeError, MemoryError) as error:
        reason = str(error).encode()
        channel.sendall(ANSWER_HEADER.pack(AnswerKind.FAILED, 0, 0, len(reason)) + reason)
        return None


def _worker(directory: Path, options: CodecWorkerOptions) -> CpuBatchDecoder | GpuBatchDecoder:
    if options.device != "cpu":
        # Its compiler is there only where there is a GPU.
        from .gpu_worker import GpuBatchDecoder, load_gpu_decoder

        device = torch.device(options.device)
        return GpuBatchDecoder(
            load_gpu_decoder(directory, options.slots, device), options.max_rows, options.batch_frames
        )
    decoder = load_streaming_decoder(directory, options.mode, options.left_context)
    worker = CpuBatchDecoder(decoder, decoder.initial_state(options.slots))
    worker.warm_up(options.max_rows, options.max_frames)
    return worker


def main(argument: str) -> None:
    """Entry of the process; `argument` is CodecWorkerOptions as JSON."""
    options = CodecWorkerOptions.from_json(argument)
    kill_with_parent(options.parent_pid)
    # Ctrl-C reaches the whole process group; it is the gateway that decides when the codec ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(options.threads)
    # The gateway may close in mid-answer, which is an end like any other.
    with suppress(BrokenPipeError, ConnectionResetError), socket.socket(fileno=options.socket_fd) as channel:
        serve(channel, options)


if __name__ == "__main__":
    main(sys.argv[1])
