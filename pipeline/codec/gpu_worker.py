"""The codec worker's arithmetic on a GPU: one CUDA graph for each shape of batch, state in a slab on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...codecs.neural.decoder import CodecDecoder
from ...codecs.neural.gpu_decoder import GpuDecoder
from ...codecs.neural.gpu_graph import capture, new_event, new_stream
from ..speech import Pcm
from .planner import CHUNK_FRAMES
from .wire import Job

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
INAUDIBLE_DB = 40.0
"""Signal to error that half precision must reach against float32, on this checkpoint's own weights, to be used."""
TRIED_FRAMES = 8


def shapes_for(max_rows: int, max_frames: int) -> list[tuple[int, int]]:
    """(rows, frames) of the graphs to capture, largest first."""
    return [
        (rows, frames)
        for frames in CHUNK_FRAMES
        for rows in reversed(ROWS)
        if rows * frames <= max_frames and rows <= 2 * max_rows
    ]


def signal_to_error_db(reference: Tensor, audio: Tensor) -> float:
    """Of two pieces of the same audio; -inf when there is anything in `audio` that is no number."""
    error = (audio - reference).double().square().sum().item()
    if not math.isfinite(error):
        return -math.inf
    return math.inf if error == 0 else 10 * math.log10(reference.double().square().sum().item() / error)


def load_gpu_decoder(checkpoint_dir: Path, slots: int, device: torch.device) -> GpuDecoder:
    """In half precision where it is inaudible for these weights, in float32 otherwise. Raises CodecFormatError."""
    loaded = CodecDecoder.from_checkpoint(checkpoint_dir)
    codes = torch.randint(
        loaded.codebook_size, (1, TRIED_FRAMES, loaded.books), generator=torch.Generator().manual_seed(1)
    )
    reference = loaded.decode_all(codes)
    decoder = GpuDecoder(loaded, slots, torch.float16, device)
    nobody, fresh = torch.tensor([slots], device=device), torch.ones(1, dtype=torch.int64, device=device)
    heard = decoder.decode(codes.to(device), nobody, fresh).cpu()
    if signal_to_error_db(reference, heard) < INAUDIBLE_DB:
        decoder = GpuDecoder(loaded, slots, torch.float32, device)
    return decoder


@dataclass(frozen=True, slots=True)
class _Captured:
    """A graph and the host memory that it reads and writes by itself: nothing else is launched for a job.

    Every call into CUDA lets go of Python's lock, which the talker's thread then may keep for a while.
    `codes`: int64 [rows, frames, books]; `owners`: slots and whether they are fresh, int64 [2, rows]; `pcm`: float32
    [rows, samples].
    """

    graph: torch.cuda.CUDAGraph
    codes: NDArray[np.int64]
    owners: NDArray[np.int64]
    pcm: Pcm


class GpuWorker:
    """Decodes jobs on the device; a batch runs in the smallest captured shape that it fits in."""

    def __init__(self, decoder: GpuDecoder, max_rows: int, max_frames: int) -> None:
        """Captures every shape; the first time compiles the kernels, which takes a while."""
        self.decoder, self._nobody = decoder, decoder.slots
        # Ahead of the talker's kernels: a chunk is short, and somebody waits for it. Graphs keep the priority.
        self._stream, self._done = new_stream(priority=-1), new_event()
        shapes = shapes_for(max_rows, max_frames)
        # One job runs at a time, so all graphs share these.
        most = max(rows * frames for rows, frames in shapes)
        self._codes = torch.zeros(most * decoder.books, dtype=torch.int64, pin_memory=True)
        self._owners = torch.zeros(2 * ROWS[-1], dtype=torch.int64, pin_memory=True)
        self._pcm = torch.empty(most * decoder.frame_samples, dtype=torch.float32, pin_memory=True)
        self._captured: dict[int, dict[int, _Captured]] = {}
        pool = None
        for rows, frames in shapes:
            captured = self._capture(rows, frames, pool)
            pool = pool or captured.graph.pool()
            self._captured.setdefault(frames, {})[rows] = captured

    def _capture(self, rows: int, frames: int, pool: Any) -> _Captured:
        decoder = self.decoder
        codes = self._codes[: rows * frames * decoder.books].view(rows, frames, decoder.books)
        owners = self._owners[: 2 * rows].view(2, rows)
        pcm = self._pcm[: rows * frames * decoder.frame_samples].view(rows, -1)
        owners[0], owners[1] = self._nobody, 1

        def run() -> None:
            slots, fresh = owners.to(decoder.device, non_blocking=True)
            made = decoder.decode(codes.to(decoder.device, non_blocking=True), slots, fresh)
            pcm.copy_(made, non_blocking=True)

        graph, _ = capture(run, self._stream, pool)
        return _Captured(graph, codes.numpy(), owners.numpy(), pcm.numpy())

    def decode(self, job: Job) -> Pcm:
        """float32 [rows, frames * 1920], to be read before the next job."""
        rows, frames, _ = job.codes.shape
        sizes = self._captured[frames]
        captured = sizes[min(size for size in sizes if size >= rows)]
        captured.codes[:rows] = job.codes
        captured.owners[:, :rows] = job.slots, job.resets
        captured.owners[0, rows:], captured.owners[1, rows:] = self._nobody, 1
        with torch.cuda.stream(self._stream):
            captured.graph.replay()
            self._done.record()
        self._done.synchronize()
        return captured.pcm[:rows]

    def decode_apart(self, job: Job) -> Pcm:
        """For `Worker`'s sake: on a GPU what goes wrong is the device, and goes wrong for all."""
        return self.decode(job)
