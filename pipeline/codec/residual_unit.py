"""Residual units of the codec's last vocoder blocks as one CUDA C++ kernel each (`csrc/residual_unit.cu`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda.layers import LayerInput, ResidualUnitWeights
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ..cuda.fast_paths import FastPath
from ..cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments

SOURCE = Path(__file__).parent / "csrc/residual_unit.cu"
TAPS = 7
"""Of a unit's dilated convolution."""
TILE_STEPS, TILE_STREAMS = 16, 8
"""Output steps and streams of a tile: 128 rows of a product."""
WARPS, LOAD_WARPS = 8, 4
"""Warps of a block that compute, and warps that fetch."""
SPINS = 1 << 24
"""Polls of a barrier, several seconds, after which the kernel traps instead of hanging."""
MAX_BLOCK_TILES = 6
"""Tiles of a block: it reads the weights once for all of them, but keeps its multiprocessor from the talker meanwhile.
"""
MIN_TILES = 240
"""Nearly two for each multiprocessor of an H200; with fewer tiles two kernels are as fast."""


@dataclass(frozen=True, slots=True)
class UnitTiling:
    """How the kernel divides a unit of `channels` channels.

    `depth`: input channels of a block of weights, of which `ring` are in shared memory; `buffers`: tiles whose inputs
    are there.
    """

    channels: int
    depth: int
    ring: int
    buffers: int

    def macros(self) -> dict[str, int]:
        return {
            "CHANNELS": self.channels, "DEPTH": self.depth, "RING": self.ring, "BUFFERS": self.buffers,
            "WARPS": WARPS, "LOAD_WARPS": LOAD_WARPS, "SPINS": SPINS, "SHARED": self.shared_bytes(),
        }  # fmt: skip  # in the order of the source

    def shared_bytes(self) -> int:
        weights, step = 2 * self.depth * self.channels, 16 * self.channels
        inputs = self.buffers * (TILE_STEPS + TAPS - 1) * step
        return self.ring * weights + inputs + 24 * self.channels + 32 * (self.ring + self.buffers) + 128


UNIT_TILINGS = (UnitTiling(96, depth=96, ring=8, buffers=2), UnitTiling(192, depth=64, ring=6, buffers=1))
"""For the last two vocoder blocks of the published codec."""


def missing_units(config: DecoderConfig, chip: ChipLimits) -> str | None:
    """Why a codec has no fused residual units on a chip; None when it has some."""
    if (reason := FastPath.RESIDUAL_UNITS.missing(chip)) is not None:
        return reason
    fused = {tiling.channels for tiling in UNIT_TILINGS}
    return None if fused.intersection(config.block_widths[1:]) else "the codec has other sizes"


def unit_launches() -> dict[UnitTiling, Launch]:
    """The kernel for each tiling on this GPU. Raises EngineError or OSError as `CudaKernel` does."""
    return {tiling: CudaKernel(unit_source(tiling), tiling.shared_bytes()).launch for tiling in UNIT_TILINGS}


def unit_source(tiling: UnitTiling) -> KernelSource:
    """The kernel for a tiling."""
    return KernelSource(SOURCE, tiling.macros())


class FusedResidualUnits:
    """Makes fused kernels for the residual units that have one (`UnitFactory` of the codec decoder)."""

    def __init__(self, launches: Mapping[UnitTiling, Launch], processors: int) -> None:
        """`processors`: multiprocessors of the GPU."""
        self._launches, self._processors = launches, processors

    def __call__(self, unit: ResidualUnitWeights, next_input: LayerInput) -> FusedResidualUnit | None:
        """`next_input`: the input of the layer that reads the unit's output; None where the kernel does not fit."""
        conv, pointwise = unit.conv, unit.pointwise
        for tiling, launch in self._launches.items():
            channels = tiling.channels
            if (
                (conv.input.channels, conv.channels, conv.taps, conv.stride) == (channels, channels, TAPS, 1)
                and conv.weight.dtype is torch.float16
                and pointwise.input.snake is not None
                and next_input.snake is not None
            ):
                return FusedResidualUnit(unit, next_input, launch, self._processors)
        return None


class FusedResidualUnit:
    """A residual unit and the snake behind it. Nothing waits for the device."""

    def __init__(self, unit: ResidualUnitWeights, next_input: LayerInput, launch: Launch, processors: int) -> None:
        conv, pointwise = unit.conv, unit.pointwise
        assert pointwise.input.snake is not None
        assert next_input.snake is not None
        self._launch, self._processors = launch, processors
        self._dilation, self._history_steps = conv.dilation, next_input.reach
        order = channel_order(conv.channels).to(pointwise.weight.device)
        self._weights = core_matrices(torch.cat([conv.weight, pointwise.weight[order]]), order)
        constants = [conv.bias, *pointwise.input.snake, pointwise.bias, *next_input.snake]
        self._constants = torch.stack(constants).float().contiguous()

    def supports(self, steps: int, rows: int) -> bool:
        """Whether the kernel can divide `steps` output steps of `rows` streams, and is worth it."""
        return rows % TILE_STREAMS == 0 and self._tiles(steps, rows) >= MIN_TILES

    def __call__(self, source: Tensor, residual: Tensor, output: Tensor) -> None:
        """Add the unit's result to `residual` [steps, rows, channels] and write the next layer's input to `output`.

        `source`: [reach + steps, rows, channels], the unit's input; `output`: the same behind `next_input.reach` steps
        of history, which stay. All float16.
        """
        steps, rows, _ = residual.shape
        tiles = self._tiles(steps, rows)
        # A whole number of blocks for each multiprocessor.
        blocks = min(tiles, self._processors * -(-tiles // (MAX_BLOCK_TILES * self._processors)))
        params = pack_arguments(
            source, self._weights, self._constants, residual, output,
            steps, rows, self._dilation, self._history_steps, tiles, blocks,
        )  # fmt: skip  # one argument list
        self._launch(blocks, 32 * (WARPS + LOAD_WARPS), params)

    def _tiles(self, steps: int, rows: int) -> int:
        # A tile's steps are `dilation` apart, so that all taps read from the same few steps.
        dilated_steps = -(-steps // self._dilation)
        return rows // TILE_STREAMS * self._dilation * -(-dilated_steps // TILE_STEPS)


def channel_order(channels: int) -> Tensor:
    """The channel of each column of a product, int64 [channels].

    Of 32 columns a thread of a WGMMA holds four pairs; this order makes them eight neighbouring channels.
    """
    column = torch.arange(channels)
    block, part, quarter, pair = column // 32, column // 8 % 4, column // 2 % 4, column % 2
    return block * 32 + quarter * 8 + part * 2 + pair


def core_matrices(matrix: Tensor, columns: Tensor) -> Tensor:
    """`matrix` [n, channels] in the 8 by 8 core matrices that WGMMA reads: [n / 8, columns / 8, 8 columns, 8 of n]."""
    blocks = matrix[:, columns].reshape(len(matrix) // 8, 8, len(columns) // 8, 8)
    return blocks.permute(0, 2, 3, 1).contiguous()
