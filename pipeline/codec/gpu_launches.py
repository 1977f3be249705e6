"""Everything that the codec launches on a GPU, over tensors without memory: to compile it ahead, without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.cuda.tiles import ChipLimits
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.decoder_shapes import tensor_shapes

from ..cuda.nvrtc import KernelSource
from .gpu_worker import captured_shapes
from .residual_unit import UNIT_TILINGS, FusedResidualUnits, missing_units, unit_source

META = torch.device("meta")
PROCESSORS = 132
"""Multiprocessors of any GPU: they decide the number of blocks, and nothing about a kernel."""


def codec_launches(
    config: DecoderConfig,
    slots: int,
    max_rows: int,
    max_frames: int,
    chip: ChipLimits,
    first_frames: tuple[int, ...],
    fallback: torch.dtype | None = None,
) -> None:
    """Decodes every batch shape that `GpuBatchDecoder` captures, and `first_frames` frames at once as the talker does.

    By default in half precision, with fused residual units and TMA where codec and `chip` can have them. `fallback`:
    the precision in which `load_gpu_decoder` decodes without either after self-tests have failed.
    """
    with META:
        loaded = CodecDecoder(config, {name: torch.empty(shape) for name, shape in tensor_shapes(config).items()})
        units = None
        if fallback is None and missing_units(config, chip) is None:
            units = FusedResidualUnits({tiling: lambda *_: None for tiling in UNIT_TILINGS}, PROCESSORS)
        tma = fallback is None
        decoder = GpuDecoder(loaded, slots, fallback or torch.float16, META, units, chip=chip, tma=tma)
        for rows, frames in captured_shapes(max_rows, max_frames):
            streams = _numbers(2, rows)
            decoder.decode(_numbers(rows, frames, decoder.codebooks), streams[0], streams[1])
        for rows in first_frames:
            inputs = _numbers(2 + decoder.codebooks, rows)
            decoder.decode(inputs[2:].t()[:, None], inputs[0], inputs[1])


def codec_sources(config: DecoderConfig, chip: ChipLimits) -> list[KernelSource]:
    """The CUDA C++ kernels that a codec has on `chip` by default."""
    return [] if missing_units(config, chip) else [unit_source(tiling) for tiling in UNIT_TILINGS]


def _numbers(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.int64, device=META)
