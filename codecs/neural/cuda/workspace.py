"""Memory for the inputs of the layers of a pass, each behind the history of its streams."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .kernels import store_history
from .layers import DecodeBatch, LayerInput

SEGMENT = 1024
"""Numbers that a program of `store_history` moves."""
ALIGNMENT = 64
"""Buffers start at multiples of this many numbers: 128 bytes in half precision."""


class Workspace:
    """Layout of the input buffers for batches of `rows` streams and `frames` frames, in one allocation.

    One kernel moves the histories of all layers.
    """

    def __init__(self, layers: Sequence[tuple[LayerInput, int]], rows: int, frames: int, device: torch.device) -> None:
        """`layers`: those that read history, and their steps a frame."""
        self._size = 0
        self._buffers: dict[int, tuple[int, int]] = {}
        """Start and number of steps of a buffer, by the layer's offset in the history."""
        segments = []
        for layer, steps_a_frame in layers:
            steps, line = steps_a_frame * frames, rows * layer.channels
            self._buffers[layer.offset] = self._size, layer.reach + steps
            history = layer.reach * layer.channels
            segments += [
                (self._size, self._size + steps * line, layer.offset, first, history, layer.channels)
                for first in range(0, history, SEGMENT)
            ]
            self._size += -(-(layer.reach + steps) * line // ALIGNMENT) * ALIGNMENT
        self._segments = torch.tensor(segments, dtype=torch.int64, device=device)

    def open(self, slab: Tensor, batch: DecodeBatch) -> PassWorkspace:
        """Allocate the buffers of a pass and fill in the streams' histories from `slab`, [slots, width]."""
        return PassWorkspace(slab.new_empty(self._size), self._buffers, self._segments, slab, batch)


class PassWorkspace:
    """The input buffers of one pass."""

    def __init__(
        self, memory: Tensor, buffers: dict[int, tuple[int, int]], segments: Tensor, slab: Tensor, batch: DecodeBatch
    ) -> None:
        self._memory, self._buffers, self._segments = memory, buffers, segments
        self._slab, self._batch = slab, batch
        self._move(store=False)

    def of(self, layer: LayerInput) -> Tensor:
        """The buffer of a layer, [reach + steps, rows, channels], of which the first `reach` steps are history."""
        begin, steps = self._buffers[layer.offset]
        shape = steps, self._batch.rows, layer.channels
        return self._memory[begin : begin + steps * self._batch.rows * layer.channels].view(shape)

    def store(self) -> None:
        """Store the last steps of every buffer as the streams' histories."""
        self._move(store=True)

    def _move(self, *, store: bool) -> None:
        batch = self._batch
        store_history[(len(self._segments), batch.rows)](
            self._slab, batch.slots, batch.fresh, self._memory, self._segments, self._slab.shape[1], batch.rows,
            STORE=store, SPAN=SEGMENT,
        )  # fmt: skip  # one argument list
