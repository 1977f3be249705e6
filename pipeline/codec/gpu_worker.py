"""The codec worker's arithmetic on a GPU: one CUDA graph for each shape of batch, state in a slab on the device."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.pcm import Pcm

from ..cuda.graphs import capture, new_event, new_stream
from ..ipc.codec_wire import Job
from .planner import CHUNK_FRAMES
from .residual_unit import FusedResidualUnits, unit_launches

log = logging.getLogger(__name__)

ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
MIN_SNR_DB = 40.0
"""Signal to error that half precision must reach against float32, on this checkpoint's own weights, to be used."""
TRIED_FRAMES, TRIED_ROWS = 8, 8


def captured_shapes(max_rows: int, max_frames: int) -> list[tuple[int, int]]:
    """(rows, frames) of the graphs to capture, largest first."""
    return [
        (rows, frames)
        for frames in CHUNK_FRAMES
        for rows in reversed(ROWS)
        if rows * frames <= max_frames and rows <= 2 * max_rows
    ]


def snr_db(reference: Tensor, audio: Tensor) -> float:
    """Of two pieces of the same audio; -inf when there is anything in `audio` that is no number."""
    error = (audio - reference).double().square().sum().item()
    if not math.isfinite(error):
        return -math.inf
    return math.inf if error == 0 else 10 * math.log10(reference.double().square().sum().item() / error)


def load_gpu_decoder(checkpoint_dir: Path, slots: int, device: torch.device) -> GpuDecoder:
    """The fastest of those whose error is inaudible with these weights; in float32 where there is none.

    Raises CodecFormatError.
    """
    loaded = CodecDecoder.from_checkpoint(checkpoint_dir)
    codes = torch.randint(
        loaded.codebook_size, (1, TRIED_FRAMES, loaded.books), generator=torch.Generator().manual_seed(1)
    )
    reference = loaded.decode_all(codes)
    if launches := unit_launches():
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        decoder = GpuDecoder(loaded, slots, torch.float16, device, FusedResidualUnits(launches, processors))
        if matches_reference(decoder, codes, reference, "with units in one kernel"):
            return decoder
    decoder = GpuDecoder(loaded, slots, torch.float16, device)
    return decoder if matches_reference(decoder, codes, reference) else GpuDecoder(loaded, slots, torch.float32, device)


def matches_reference(decoder: GpuDecoder, codes: Tensor, reference: Tensor, how: str = "") -> bool:
    """Whether a batch of streams that all say `codes` comes out as `reference`, but for what nobody hears."""
    nobody = torch.full((TRIED_ROWS,), decoder.slots, device=decoder.device)
    heard = decoder.decode(codes.to(decoder.device).expand(TRIED_ROWS, -1, -1), nobody, torch.ones_like(nobody)).cpu()
    worst_db = min(snr_db(reference, row[None]) for row in heard)
    log.info("codec in %s %s: %.1f dB from float32", str(decoder.dtype).removeprefix("torch."), how, worst_db)
    return worst_db >= MIN_SNR_DB


@dataclass(frozen=True, slots=True)
class _CapturedBatch:
    """`owners`: slots and whether they are fresh, int64 [2, rows]."""

    graph: torch.cuda.CUDAGraph
    codes: Tensor
    owners: Tensor
    pcm: Tensor


class _StagingBuffers:
    """The host's memory for a batch on its way to the device and back."""

    def __init__(self, max_frames: int, books: int, frame_samples: int) -> None:
        self._codes = torch.empty(max_frames * books, dtype=torch.int64, pin_memory=True)
        self._owners = torch.empty(2 * ROWS[-1], dtype=torch.int64, pin_memory=True)
        self._pcm = torch.empty(max_frames * frame_samples, dtype=torch.float32, pin_memory=True)
        self.begun, self.done = new_event(timing=True), new_event(timing=True)

    def owners(self, rows: int) -> Tensor:
        return self._owners[: 2 * rows].view(2, rows)

    def codes(self, rows: int, frames: int, books: int) -> Tensor:
        return self._codes[: rows * frames * books].view(rows, frames, books)

    def pcm(self, rows: int, decoded: Tensor) -> Tensor:
        return self._pcm[: rows * decoded.shape[1]].view(rows, -1)


@dataclass(frozen=True, slots=True)
class _Launched:
    """A batch that the device works on."""

    staging: _StagingBuffers
    sound: Tensor

    @property
    def over(self) -> bool:
        return bool(self.staging.done.query())  # type: ignore[no-untyped-call]  # torch has no types for it

    def pcm(self) -> Pcm:
        self.staging.done.synchronize()
        audio: Pcm = self.sound.numpy()
        return audio

    @property
    def seconds(self) -> float:
        return float(self.staging.begun.elapsed_time(self.staging.done)) / 1000


class GpuBatchDecoder:
    """Decodes jobs on the device; a batch runs in the smallest captured shape that it fits in."""

    ahead = 2

    def __init__(self, decoder: GpuDecoder, max_rows: int, max_frames: int) -> None:
        """Captures every shape; the first time compiles the kernels, which takes a while."""
        self.decoder, self._nobody = decoder, decoder.slots
        # Ahead of the talker's kernels: a chunk is short, and somebody waits for it. Graphs keep the priority.
        self._stream = new_stream(priority=-1)
        self._captured: dict[int, dict[int, _CapturedBatch]] = {}
        pool = None
        for rows, frames in captured_shapes(max_rows, max_frames):
            captured = self._capture(rows, frames, pool)
            pool = pool or captured.graph.pool()
            self._captured.setdefault(frames, {})[rows] = captured
        self._captured = {frames: dict(sorted(sizes.items())) for frames, sizes in self._captured.items()}
        self._free = deque(_StagingBuffers(max_frames, decoder.books, decoder.frame_samples) for _ in range(self.ahead))
        self.first_frame_event: torch.cuda.Event | None = None
        """When the last stream that another began in one of the slots has its first sound (`gpu_first_sound.py`)."""

    def _capture(self, rows: int, frames: int, pool: Any) -> _CapturedBatch:
        device = self.decoder.device
        codes = torch.zeros(rows, frames, self.decoder.books, dtype=torch.int64, device=device)
        owners = torch.tensor([[self._nobody] * rows, [1] * rows], device=device)
        graph, pcm = capture(lambda: self.decoder.decode(codes, owners[0], owners[1]), self._stream, pool)
        return _CapturedBatch(graph, codes, owners, pcm)

    def launch(self, job: Job) -> _Launched:
        """At most `ahead` of them before the first one's sound is taken."""
        rows, frames, books = job.codes.shape
        sizes = self._captured[frames]
        size = next(size for size in sizes if size >= rows)
        captured = sizes[size]
        staging = self._free[0]
        owners, codes, pcm = staging.owners(size), staging.codes(rows, frames, books), staging.pcm(rows, captured.pcm)
        numbers = owners.numpy()
        numbers[:, :rows] = job.slots, job.resets
        numbers[0, rows:], numbers[1, rows:] = self._nobody, 1
        codes.numpy()[:] = job.codes
        with torch.cuda.stream(self._stream):
            if any(job.resets) and self.first_frame_event is not None:
                # Whoever had the slot before may have been cut off in his first frame.
                self._stream.wait_event(self.first_frame_event)
            staging.begun.record()
            captured.owners.copy_(owners, non_blocking=True)
            captured.codes[:rows].copy_(codes, non_blocking=True)
            captured.graph.replay()
            pcm.copy_(captured.pcm[:rows], non_blocking=True)
            staging.done.record()
        # Only now: one that could not be launched must not make its successor take the staging of the one under way.
        self._free.rotate(-1)
        return _Launched(staging, pcm)

    def decode(self, job: Job) -> Pcm:
        """float32 [rows, frames * 1920]."""
        return self.launch(job).pcm()
