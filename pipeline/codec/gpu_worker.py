"""The codec worker's arithmetic on a GPU: a CUDA graph for each batch shape; the streams' state is on the device."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from voxgate.codecs.neural.config import KEPT_STATES
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.streaming import SlotDecoder
from voxgate.codecs.pcm import Pcm

from ..cuda.chip import chip_limits
from ..cuda.fast_paths import FastPath
from ..cuda.graphs import CapturedGraph, GraphBuckets, new_event, new_memory_pool, new_stream
from ..cuda.self_test import accelerated
from ..ipc.codec_wire import Job
from .beginnings import Beginnings
from .kept_states import KeptStates
from .planner import CHUNK_FRAMES
from .residual_unit import FusedResidualUnits, missing_units, unit_launches
from .service import FEW_GPU_SLOTS

log = logging.getLogger(__name__)

ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Streams of the batches that have a graph."""
STREAM_PRIORITY = -1
"""Above the talker's kernels (0): a chunk is short, and a client waits for it. Graphs keep the priority."""
MIN_SNR_DB = 40.0
"""Signal-to-error ratio against float32 that half precision must reach with this checkpoint's weights to be used."""
TEST_FRAMES, FEW_TEST_ROWS, TEST_ROWS = 8, 8, 16
"""Frames of the self-test's batch, and its streams where batches are small and where they are not: enough for the
largest tiles, and a shape that has a graph in any case."""


def captured_shapes(max_rows: int, max_frames: int) -> list[tuple[int, int]]:
    """Batch shapes to capture, (streams, frames of each); `max_frames`: largest product of both.

    Those that need the most memory come first, and of equal products those of more streams, which have more history.
    """
    shapes = [(rows, frames) for frames in CHUNK_FRAMES for rows in ROWS if rows <= 2 * max_rows]
    return sorted(
        (shape for shape in shapes if math.prod(shape) <= max_frames),
        key=lambda shape: (math.prod(shape), shape),
        reverse=True,
    )


def snr_db(reference: Tensor, audio: Tensor) -> float:
    """Signal-to-error ratio of `audio` against `reference`; -inf when `audio` has a non-finite sample."""
    error = (audio - reference).double().square().sum().item()
    if not math.isfinite(error):
        return -math.inf
    return math.inf if error == 0 else 10 * math.log10(reference.double().square().sum().item() / error)


def load_gpu_decoder(
    checkpoint_dir: Path,
    slots: int,
    device: torch.device,
    on_fallback: Callable[[torch.dtype], object] = lambda _: None,
) -> GpuDecoder:
    """The fastest decoder whose error is inaudible: fused units, half precision with TMA, without it, else float32.

    `on_fallback` is called with its precision when a self-test has failed, so that it has other kernels than those of
    `codec_launches` by default. Raises CodecFormatError.
    """
    loaded = CodecDecoder.from_checkpoint(checkpoint_dir)
    codes = torch.randint(
        loaded.codebook_size, (1, TEST_FRAMES, loaded.codebooks), generator=torch.Generator().manual_seed(1)
    )
    reference = loaded.decode_all(codes)
    chip = chip_limits(device)

    def fused() -> GpuDecoder:
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        units = FusedResidualUnits(unit_launches(), processors)
        return GpuDecoder(loaded, slots, torch.float16, device, units, chip=chip)

    def half(*, tma: bool) -> GpuDecoder:
        return GpuDecoder(loaded, slots, torch.float16, device, chip=chip, tma=tma)

    def matches(decoder: GpuDecoder) -> bool:
        return matches_reference(decoder, codes, reference)

    reason = missing_units(loaded.config, chip)
    fastest = accelerated(FastPath.RESIDUAL_UNITS, fused, matches, unavailable=reason)
    if reason is not None:
        fastest = accelerated(FastPath.HALF_CODEC, partial(half, tma=True), matches)
    if fastest is not None:
        return fastest
    # Only Hopper has something to leave out.
    plain = accelerated(FastPath.HALF_CODEC, partial(half, tma=False), matches) if chip.is_hopper else None
    plain = plain or GpuDecoder(loaded, slots, torch.float32, device, chip=chip)
    on_fallback(plain.dtype)
    return plain


def matches_reference(decoder: GpuDecoder, codes: Tensor, reference: Tensor) -> bool:
    """Whether streams, all with `codes` [1, n, 16], equal `reference` [1, samples] to `MIN_SNR_DB`.

    A batch of all frames, and the first two one by one: other tiles compute these.
    """
    rows = FEW_TEST_ROWS if decoder.slots <= FEW_GPU_SLOTS else TEST_ROWS
    codes, slots = codes.to(decoder.device), torch.full((rows,), decoder.slots, device=decoder.device)
    fresh = torch.ones_like(slots)
    decoded = decoder.decode(codes.expand(rows, -1, -1), slots, fresh).cpu()
    single = [decoder.decode(codes[:, at : at + 1], slots[:1], (1 - at) * fresh[:1]).cpu() for at in (0, 1)]
    worst_db = min(snr_db(reference, row[None]) for row in decoded)
    worst_db = min(worst_db, snr_db(reference[:, : 2 * decoder.frame_samples], torch.cat(single, 1)))
    log.info("codec in %s: %.1f dB against float32", str(decoder.dtype).removeprefix("torch."), worst_db)
    return worst_db >= MIN_SNR_DB


@dataclass(frozen=True, slots=True)
class _BatchInputs:
    """`codes`: int64 [rows, frames, codebooks]; `streams`: int64 [2, rows], slots and whether they are fresh."""

    codes: Tensor
    streams: Tensor


class GpuBatchDecoder:
    """Decodes jobs on the device; a batch runs in the smallest captured shape that it fits in."""

    max_in_flight = 2
    """Jobs that may be launched before the PCM of the first is taken."""

    def __init__(self, decoder: SlotDecoder, max_rows: int, max_frames: int) -> None:
        """Captures a graph for every shape; compiles the kernels where they are not cached."""
        self.decoder = decoder
        self._stream = new_stream(priority=STREAM_PRIORITY)
        pool = new_memory_pool()
        by_frames: dict[int, dict[int, CapturedGraph[_BatchInputs, Tensor]]] = {}
        # The largest first, whatever its chunks: outputs stay allocated, and between those of another graph there is
        # no room for a larger one.
        for rows, frames in captured_shapes(max_rows, max_frames):
            by_frames.setdefault(frames, {})[rows] = CapturedGraph.capture(
                lambda inputs: decoder.decode(inputs.codes, inputs.streams[0], inputs.streams[1]),
                self._padding_inputs(frames, rows),
                stream=self._stream,
                pool=pool,
            )
        self._graphs = {frames: GraphBuckets(graphs) for frames, graphs in by_frames.items()}
        self._staging = deque(
            _BatchStaging(max_frames, decoder.codebooks, decoder.frame_samples) for _ in range(self.max_in_flight)
        )
        self.first_frame_event: torch.cuda.Event | None = None
        """Recorded when the latest first frame that the talker decodes in one of the slots is complete."""
        self.restored_event = new_event()
        """Recorded when the latest state is restored. A first frame is decoded in its slot behind it."""
        self.beginnings = Beginnings()
        self._kept_states = KeptStates(KEPT_STATES)

    def _padding_inputs(self, frames: int, rows: int) -> _BatchInputs:
        """Inputs of streams in the padding slot."""
        device = self.decoder.device
        return _BatchInputs(
            codes=torch.zeros(rows, frames, self.decoder.codebooks, dtype=torch.int64, device=device),
            streams=torch.tensor([[self.decoder.slots] * rows, [1] * rows], device=device),
        )

    def launch(self, job: Job) -> _LaunchedJob:
        """Start decoding; at most `max_in_flight` jobs before the PCM of the first is taken."""
        rows, frames, codebooks = job.codes.shape
        size, graph = self._graphs[frames].smallest(rows)
        staging = self._staging[0]
        streams, codes = staging.streams(size), staging.codes(rows, frames, codebooks)
        pcm = staging.pcm(rows, graph.outputs)
        numbers = streams.numpy()
        numbers[:, :rows] = job.slots, job.resets
        numbers[0, rows:], numbers[1, rows:] = self.decoder.slots, 1
        codes.numpy()[:] = job.codes
        with torch.cuda.stream(self._stream):
            if any(job.resets):
                self._wait_for_first_frames()
            staging.started.record()
            graph.inputs.streams.copy_(streams, non_blocking=True)
            graph.inputs.codes[:rows].copy_(codes, non_blocking=True)
            pcm.copy_(graph.replay()[:rows], non_blocking=True)
            staging.done.record()
        # Only after a successful launch, so that the next job cannot take the buffers of one in flight.
        self._staging.rotate(-1)
        return _LaunchedJob(staging, pcm)

    @torch.inference_mode()
    def keep(self, slot: int, key: bytes) -> None:
        """See `BatchDecoder.keep`."""
        if (place := self._kept_states.assign(key)) is not None:
            with torch.cuda.stream(self._stream):
                self.decoder.keep_state(slot, place)

    @torch.inference_mode()
    def restore(self, slot: int, key: bytes) -> bool:
        """See `BatchDecoder.restore`."""
        if (place := self._kept_states.find(key)) is None:
            return False
        with torch.cuda.stream(self._stream):
            self._wait_for_first_frames()
            self.decoder.restore_state(slot, place)
            self.restored_event.record()
        return True

    def yields(self, now_s: float) -> bool:
        """See `BatchDecoder.yields`."""
        return self.beginnings.under_way(now_s)

    def _wait_for_first_frames(self) -> None:
        """The previous owner of a slot may have been cancelled while its first frame was being decoded."""
        if self.first_frame_event is not None:
            self._stream.wait_event(self.first_frame_event)

    def decode(self, job: Job) -> Pcm:
        """The PCM of a job, float32 [rows, frames * 1920] in [-1, 1]. Waits for the device."""
        return self.launch(job).pcm()


class _BatchStaging:
    """Pinned memory for a batch on its way to the device and back."""

    def __init__(self, max_frames: int, codebooks: int, frame_samples: int) -> None:
        self._codes = torch.empty(max_frames * codebooks, dtype=torch.int64, pin_memory=True)
        self._streams = torch.empty(2 * ROWS[-1], dtype=torch.int64, pin_memory=True)
        self._pcm = torch.empty(max_frames * frame_samples, dtype=torch.float32, pin_memory=True)
        self.started, self.done = new_event(timing=True), new_event(timing=True)

    def streams(self, rows: int) -> Tensor:
        return self._streams[: 2 * rows].view(2, rows)

    def codes(self, rows: int, frames: int, codebooks: int) -> Tensor:
        return self._codes[: rows * frames * codebooks].view(rows, frames, codebooks)

    def pcm(self, rows: int, decoded: Tensor) -> Tensor:
        return self._pcm[: rows * decoded.shape[1]].view(rows, -1)


@dataclass(frozen=True, slots=True)
class _LaunchedJob:
    """A job that the device is decoding."""

    staging: _BatchStaging
    samples: Tensor

    @property
    def done(self) -> bool:
        """Whether `pcm` returns without waiting."""
        return bool(self.staging.done.query())  # type: ignore[no-untyped-call]  # torch has no types for it

    def pcm(self) -> Pcm:
        """float32 [rows, samples]; valid until the job after the next is launched. Waits for the device."""
        self.staging.done.synchronize()
        audio: Pcm = self.samples.numpy()
        return audio

    @property
    def seconds(self) -> float:
        """Time that the device took."""
        return float(self.staging.started.elapsed_time(self.staging.done)) / 1000
