"""Where the layers of a pass find their inputs: in one stretch of memory, behind what streams remember of the past."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .kernels import store_history
from .layers import DecodeBatch, LayerInput

SPAN = 1024
"""Numbers that a program moves."""
ALIGNED = 64
"""Workspace begin at multiples of so many numbers."""


class Workspace:
    """How the rooms of a batch of so many rows and frames lie; what moves there is one kernel for all layers."""

    def __init__(self, layers: Sequence[tuple[LayerInput, int]], rows: int, frames: int, device: torch.device) -> None:
        """`layers`: those that look back, and their steps a frame."""
        self._rows, self._size = rows, 0
        self._places: dict[int, tuple[int, int]] = {}
        """Where a room begins and its steps, by the layer's stretch of the history."""
        pieces = []
        for layer, steps_a_frame in layers:
            steps, line = steps_a_frame * frames, rows * layer.channels
            self._places[layer.offset] = self._size, layer.reach + steps
            past = layer.reach * layer.channels
            pieces += [
                (self._size, self._size + steps * line, layer.offset, first, past, layer.channels)
                for first in range(0, past, SPAN)
            ]
            self._size += -(-(layer.reach + steps) * line // ALIGNED) * ALIGNED
        self._pieces = torch.tensor(pieces, dtype=torch.int64, device=device)

    def open(self, slab: Tensor, batch: DecodeBatch) -> PassWorkspace:
        """For a pass; every room begins with the streams' histories."""
        return PassWorkspace(slab.new_empty(self._size), self._places, self._pieces, slab, batch)


class PassWorkspace:
    """Those of a pass."""

    def __init__(
        self, memory: Tensor, places: dict[int, tuple[int, int]], pieces: Tensor, slab: Tensor, batch: DecodeBatch
    ) -> None:
        self._memory, self._places, self._pieces = memory, places, pieces
        self._slab, self._batch = slab, batch
        self._move(keep=False)

    def of(self, layer: LayerInput) -> Tensor:
        """[reach + steps, rows, channels], of which `reach` are the past."""
        begin, steps = self._places[layer.offset]
        shape = steps, self._batch.rows, layer.channels
        return self._memory[begin : begin + steps * self._batch.rows * layer.channels].view(shape)

    def keep(self) -> None:
        """The last of what every layer has seen goes into the streams' histories."""
        self._move(keep=True)

    def _move(self, *, keep: bool) -> None:
        batch = self._batch
        store_history[(len(self._pieces), batch.rows)](
            self._slab, batch.slots, batch.fresh, self._memory, self._pieces, self._slab.shape[1], batch.rows,
            KEEP=keep, SPAN=SPAN,
        )  # fmt: skip  # one argument list
