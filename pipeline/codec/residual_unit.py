"""Residual units of the codec's last blocks as one kernel each, in CUDA C++ (`csrc/residual_unit.cu`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.layers import LayerInput, ResidualUnitWeights

from ..cuda.nvrtc import CudaKernel, Launch, supported, words
from ..errors import EngineError

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent.joinpath("csrc/residual_unit.cu")
TAPS, STEPS, STREAMS = 7, 16, 8
"""Of a unit; of a tile."""
WARPS, FETCHERS = 8, 4
SPINS = 1 << 24
TILES_EACH = 6
"""Of a block, at most: weights are read once, but a multiprocessor is the talker's no later than when a block ends."""
LEAST_TILES = 240
"""Nearly two for each multiprocessor of an H200; with fewer a unit stays two kernels."""


@dataclass(frozen=True, slots=True)
class UnitTiling:
    """How the kernel cuts a unit up.

    `depth`: inputs of a part of the weights, of which `ring` are in shared memory; `buffers`: tiles' inputs there.
    """

    channels: int
    depth: int
    ring: int
    buffers: int

    def macros(self) -> dict[str, int]:
        return {
            "CHANNELS": self.channels, "DEPTH": self.depth, "RING": self.ring, "BUFFERS": self.buffers,
            "WARPS": WARPS, "FETCHERS": FETCHERS, "SPINS": SPINS, "SHARED": self.shared_bytes(),
        }  # fmt: skip  # in the order of the source

    def shared_bytes(self) -> int:
        part, step = 2 * self.depth * self.channels, 16 * self.channels
        inputs = self.buffers * (STEPS + TAPS - 1) * step
        return self.ring * part + inputs + 24 * self.channels + 32 * (self.ring + self.buffers) + 128


UNIT_TILINGS = (UnitTiling(96, depth=96, ring=8, buffers=2), UnitTiling(192, depth=64, ring=6, buffers=1))
"""Of the published codec's last blocks."""


def unit_launches() -> dict[UnitTiling, Launch]:
    """The kernel for each cut on this GPU; none where it cannot be had."""
    if not supported():
        return {}
    try:
        return {cut: CudaKernel(SOURCE, cut.macros(), cut.shared_bytes()).launch for cut in UNIT_TILINGS}
    except (EngineError, OSError) as error:
        log.warning("the codec's units are two kernels each, more slowly: %s", error)
        return {}


class FusedResidualUnits:
    """Makes the units that the kernel can do."""

    def __init__(self, launches: Mapping[UnitTiling, Launch], processors: int) -> None:
        """`processors`: of the GPU."""
        self._launches, self._processors = launches, processors

    def __call__(self, unit: ResidualUnitWeights, ahead: LayerInput) -> FusedResidualUnit | None:
        """`ahead`: what reads the unit's output; None where the unit is none that the kernel can do."""
        conv, point = unit.conv, unit.pointwise
        for cut, launch in self._launches.items():
            if (
                (conv.input.channels, conv.channels, conv.taps, conv.stride) == (cut.channels, cut.channels, TAPS, 1)
                and conv.weight.dtype is torch.float16
                and point.input.wave is not None
                and ahead.wave is not None
            ):
                return FusedResidualUnit(unit, ahead, launch, self._processors)
        return None


class FusedResidualUnit:
    """A residual unit and the snake behind it. Nothing in it waits for the device."""

    def __init__(self, unit: ResidualUnitWeights, ahead: LayerInput, launch: Launch, processors: int) -> None:
        conv, point = unit.conv, unit.pointwise
        assert point.input.wave is not None
        assert ahead.wave is not None
        self._launch, self._processors = launch, processors
        self._dilation, self._room = conv.dilation, ahead.reach
        inner = turned(conv.channels).to(point.weight.device)
        self._weights = pieces(torch.cat([conv.weight, point.weight[inner]]), inner)
        self._constants = torch.stack([conv.bias, *point.input.wave, point.bias, *ahead.wave]).float().contiguous()

    def takes(self, steps: int, rows: int) -> bool:
        """Whether so many output steps of so many streams are enough, and can be cut up."""
        return rows % STREAMS == 0 and self._tiles(steps, rows) >= LEAST_TILES

    def __call__(self, source: Tensor, residual: Tensor, onward: Tensor) -> None:
        """`source`: [reach + steps, rows, channels]; `residual`: [steps, rows, channels], added to; `onward`: as `source`,
        for the next layer. All float16.
        """
        steps, rows, _ = residual.shape
        tiles = self._tiles(steps, rows)
        # As many on each multiprocessor.
        blocks = min(tiles, self._processors * -(-tiles // (TILES_EACH * self._processors)))
        argument = words(
            source, self._weights, self._constants, residual, onward,
            steps, rows, self._dilation, self._room, tiles, blocks,
        )  # fmt: skip  # one argument list
        self._launch(blocks, 32 * (WARPS + FETCHERS), argument)

    def _tiles(self, steps: int, rows: int) -> int:
        turns = -(-steps // self._dilation)
        return rows // STREAMS * self._dilation * -(-turns // STEPS)


def turned(channels: int) -> Tensor:
    """The channel of each column of a product: what a thread holds of 32 of them are eight neighbours."""
    column = torch.arange(channels)
    block, part, quarter, pair = column // 32, column // 8 % 4, column // 2 % 4, column % 2
    return block * 32 + quarter * 8 + part * 2 + pair


def pieces(matrix: Tensor, columns: Tensor) -> Tensor:
    """`matrix` [n, channels] as products read it: [eights of n, eights of columns, 8 columns, 8 of n]."""
    cut = matrix[:, columns].reshape(len(matrix) // 8, 8, len(columns) // 8, 8)
    return cut.permute(0, 2, 3, 1).contiguous()
