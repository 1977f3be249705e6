"""The codec worker: loads the decoder, holds the state of every stream, and decodes the batches it is given.

On a CPU it is a process of its own, started by the service as `python -m voxgate.pipeline.codec.worker OPTIONS` with
its end of a socket pair. It never outlives the gateway: the kernel kills it with its parent, and on other systems it
ends when the socket closes. On a GPU it is a thread of the talker's process: kernels of two processes take turns on a
GPU, milliseconds each, but those of two streams of one process run concurrently.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.config import KEPT_STATES
from voxgate.codecs.neural.streaming import OverlapDecoder, SlotDecoder, load_slot_decoder
from voxgate.codecs.pcm import Pcm

from ..ipc.codec_wire import ANSWER_HEADER, AnswerKind, CodecWorkerOptions, Job
from ..ipc.process_death import ignore_group_signals, kill_with_parent
from .kept_states import KeptStates
from .planner import usual_shapes
from .worker_loop import DECODE_ERRORS, FinishedBatch, run_worker_loop

if TYPE_CHECKING:
    from .gpu_worker import GpuBatchDecoder

THREAD_SWITCH_INTERVAL_S = 0.0001
"""Longest time that the talker's Python code keeps the codec's waiting for the interpreter lock."""
WARM_UP_ROUNDS = 2


def serve_in_process(
    options: CodecWorkerOptions,
    on_step: Callable[[str], object] = lambda _: None,
    on_fallback: Callable[[torch.dtype], object] = lambda _: None,
) -> GpuBatchDecoder | None:
    """Loads the decoder in this thread, then serves from a thread of its own until the socket closes.

    While it loads, `on_step` is called with what is done next, and `on_fallback` as `load_gpu_decoder` does.
    Returns the decoder with which the talker may decode first frames itself; None in overlap mode, which keeps no
    state to continue, and when loading failed, which is answered to the service with the reason.
    """
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(f"\0{options.address}")
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        worker = _load(channel, options, on_step, on_fallback)
    finally:
        torch.set_default_dtype(default_dtype)
    if worker is None:
        return None

    def serve() -> None:
        # The gateway may close the socket while an answer is sent, which is an end like any other.
        with suppress(BrokenPipeError, ConnectionResetError), channel:
            run_worker_loop(channel, worker, options)

    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    threading.Thread(target=serve, name="codec", daemon=True).start()
    if options.codec_mode == "overlap":
        return None
    # A worker in another process's thread is on a GPU.
    return cast("GpuBatchDecoder", worker)


def main(argument: str) -> None:
    """Runs the worker's process; `argument` is CodecWorkerOptions as JSON."""
    options = CodecWorkerOptions.from_json(argument)
    kill_with_parent(options.parent_pid)
    ignore_group_signals()
    torch.set_num_threads(1)  # the decoder has threads of its own
    # The gateway may close the socket while an answer is sent, which is an end like any other.
    with suppress(BrokenPipeError, ConnectionResetError), socket.socket(fileno=options.socket_fd) as channel:
        _serve(channel, options)


@torch.inference_mode()
def _serve(channel: socket.socket, options: CodecWorkerOptions) -> None:
    if (worker := _load(channel, options)) is not None:
        run_worker_loop(channel, worker, options)


def _load(
    channel: socket.socket,
    options: CodecWorkerOptions,
    on_step: Callable[[str], object] = lambda _: None,
    on_fallback: Callable[[torch.dtype], object] = lambda _: None,
) -> CpuBatchDecoder | GpuBatchDecoder | None:
    """Loads the decoder and warms it up; answers FAILED with the reason and returns None when that is impossible."""
    try:
        return _load_on_cpu(options) if options.device == "cpu" else _load_on_gpu(options, on_step, on_fallback)
    except (CodecFormatError, RuntimeError, MemoryError) as error:
        # CUDA's message has a paragraph on its allocator's settings.
        text = "the GPU's memory ran out" if isinstance(error, torch.OutOfMemoryError) else str(error)
        reason = text.encode()
        channel.sendall(ANSWER_HEADER.pack(AnswerKind.FAILED, 0, 0, len(reason)) + reason)
        return None


def _load_on_cpu(options: CodecWorkerOptions) -> CpuBatchDecoder:
    decoder = load_slot_decoder(
        Path(options.checkpoint_dir), options.slots, options.codec_mode, options.left_context, options.threads
    )
    worker = CpuBatchDecoder(decoder)
    worker.warm_up(options.max_rows, options.max_frames)
    return worker


def _load_on_gpu(
    options: CodecWorkerOptions, on_step: Callable[[str], object], on_fallback: Callable[[torch.dtype], object]
) -> GpuBatchDecoder:
    # Imported here because Triton is installed only where there is a GPU.
    from .gpu_worker import GpuBatchDecoder, load_gpu_decoder

    device, directory = torch.device(options.device), Path(options.checkpoint_dir)
    decoder: SlotDecoder
    if options.codec_mode == "overlap":
        # The backend keeps no state of streams.
        backend = load_gpu_decoder(directory, 0, device, on_fallback)
        decoder = OverlapDecoder(backend, options.slots, options.left_context, device)
    else:
        decoder = load_gpu_decoder(directory, options.slots, device, on_fallback)
    on_step("capturing graphs of the codec")
    return GpuBatchDecoder(decoder, options.max_rows, options.max_frames)


@dataclass(slots=True)
class CpuBatchDecoder:
    """Decodes each job at once with a `SlotDecoder`."""

    decoder: SlotDecoder
    kept_states: KeptStates = field(default_factory=lambda: KeptStates(KEPT_STATES))

    max_in_flight = 1

    def launch(self, job: Job) -> FinishedBatch:
        """Decodes a job; where that fails, each of its rows alone. Raises DECODE_ERRORS when no row can be decoded."""
        began_s = time.monotonic()
        try:
            pcm = self.decode(job)
        except DECODE_ERRORS:
            pcm = self.decode_rows(job)
        return FinishedBatch(pcm, time.monotonic() - began_s)

    def keep(self, slot: int, key: bytes) -> None:
        """See `BatchDecoder.keep`."""
        if (place := self.kept_states.assign(key)) is not None:
            self.decoder.keep_state(slot, place)

    def restore(self, slot: int, key: bytes) -> bool:
        """See `BatchDecoder.restore`."""
        if (place := self.kept_states.find(key)) is None:
            return False
        self.decoder.restore_state(slot, place)
        return True

    def yields(self, _: float) -> bool:
        """See `BatchDecoder.yields`. Where the talker does not decode first frames, they are jobs like others."""
        return False

    def decode(self, job: Job) -> Pcm:
        """Decodes a job to float32 [rows, frames * 1920]. When it raises, no slot has advanced."""
        codes = torch.from_numpy(job.codes.astype(np.int64))
        pcm = self.decoder.decode(codes, torch.tensor(job.slots), torch.tensor(job.resets, dtype=torch.int64))
        audio: Pcm = np.ascontiguousarray(pcm.numpy(), dtype=np.float32)
        return audio

    def decode_rows(self, job: Job) -> Pcm:
        """Decodes a job row by row; NaN for rows that cannot be decoded. Raises the last error when none can.

        On a GPU there is no such retry: its kernels do not raise, and `InFlightJob.deliver` fails a stream of NaN.
        """
        rows: list[Pcm] = []
        for row, (slot, reset) in enumerate(zip(job.slots, job.resets, strict=True)):
            try:
                rows.append(self.decode(Job(job.serial, (slot,), (reset,), job.codes[row : row + 1])))
            except DECODE_ERRORS as error:
                last = error
                print(f"codec: cannot decode the stream in slot {slot}: {error!r}", file=sys.stderr, flush=True)
                rows.append(np.full((1, job.codes.shape[1] * self.decoder.frame_samples), np.nan, np.float32))
        if np.isnan(rows).all():
            raise last
        return np.concatenate(rows)

    def warm_up(self, max_rows: int, max_frames: int) -> None:
        """Runs every usual shape, so that no listener waits for a shape's first run."""
        for rows, frames in usual_shapes(max_rows, max_frames):
            codes = torch.zeros(rows, frames, self.decoder.codebooks, dtype=torch.int64)
            padding, fresh = torch.full((rows,), self.decoder.slots), torch.ones(rows, dtype=torch.int64)
            for _ in range(WARM_UP_ROUNDS):
                self.decoder.decode(codes, padding, fresh)


if __name__ == "__main__":
    main(sys.argv[1])
