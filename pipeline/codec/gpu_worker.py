"""The codec worker's arithmetic on a GPU: one CUDA graph for each shape of batch, state in a slab on the device."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
    """`owners`: slots and whether they are fresh, int64 [2, rows]."""

    graph: torch.cuda.CUDAGraph
    codes: Tensor
    owners: Tensor
    pcm: Tensor


class GpuWorker:
    """Decodes jobs on the device; a batch runs in the smallest captured shape that it fits in."""

    def __init__(self, decoder: GpuDecoder, max_rows: int, max_frames: int) -> None:
        """Captures every shape; the first time compiles the kernels, which takes a while."""
        self.decoder, self._nobody = decoder, decoder.slots
        # Ahead of the talker's kernels: a chunk is short, and somebody waits for it. Graphs keep the priority.
        self._stream, self._done = new_stream(priority=-1), new_event()
        self._captured: dict[int, dict[int, _Captured]] = {}
        pool = None
        for rows, frames in shapes_for(max_rows, max_frames):
            captured = self._capture(rows, frames, pool)
            pool = pool or captured.graph.pool()
            self._captured.setdefault(frames, {})[rows] = captured
        self._codes = torch.empty(max_frames * decoder.books, dtype=torch.int64, pin_memory=True)
        self._owners = torch.empty(2 * ROWS[-1], dtype=torch.int64, pin_memory=True)
        self._pcm = torch.empty(max_frames * decoder.frame_samples, dtype=torch.float32, pin_memory=True)

    def _capture(self, rows: int, frames: int, pool: Any) -> _Captured:
        device = self.decoder.device
        codes = torch.zeros(rows, frames, self.decoder.books, dtype=torch.int64, device=device)
        owners = torch.tensor([[self._nobody] * rows, [1] * rows], device=device)
        graph, pcm = capture(lambda: self.decoder.decode(codes, owners[0], owners[1]), self._stream, pool)
        return _Captured(graph, codes, owners, pcm)

    def decode(self, job: Job) -> Pcm:
        """float32 [rows, frames * 1920]."""
        rows, frames, books = job.codes.shape
        sizes = self._captured[frames]
        size = sorted(sizes)[bisect_left(sorted(sizes), rows)]
        captured = sizes[size]
        owners = self._owners[: 2 * size].view(2, size)
        owners[:, :rows] = torch.tensor([job.slots, job.resets])
        owners[0, rows:], owners[1, rows:] = self._nobody, 1
        codes = self._codes[: rows * frames * books].view(rows, frames, books)
        codes.copy_(torch.from_numpy(job.codes.astype(np.int64)))
        pcm = self._pcm[: rows * captured.pcm.shape[1]].view(rows, -1)
        with torch.cuda.stream(self._stream):
            captured.owners.copy_(owners, non_blocking=True)
            captured.codes[:rows].copy_(codes, non_blocking=True)
            captured.graph.replay()
            pcm.copy_(captured.pcm[:rows], non_blocking=True)
            self._done.record()
        self._done.synchronize()
        audio: Pcm = pcm.numpy()
        return audio

    def decode_apart(self, job: Job) -> Pcm:
        """For `Worker`'s sake: on a GPU what goes wrong is the device, and goes wrong for all."""
        return self.decode(job)
