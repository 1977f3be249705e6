"""What a stream remembers between chunks: one row of numbers, in which every layer has its stretch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StreamState:
    """Streams at a chunk boundary, one row each: what the layers remember, and how far each stream is.

    `history`: [rows, width]; `frames`: int64 [rows], frames decoded so far. A stream at its start is all
    zeros. The same type holds the slab of a service (one row a slot) and the rows of one batch.
    """

    history: Tensor
    frames: Tensor

    @property
    def rows(self) -> int:
        return len(self.frames)

    def take(self, slots: Tensor) -> StreamState:
        """Copy the rows `slots` (int64 [B], distinct) out of the slab."""
        return StreamState(self.history.index_select(0, slots), self.frames.index_select(0, slots))

    def put(self, slots: Tensor, state: StreamState) -> None:
        """Write the rows of `state` back to `slots`."""
        self.history.index_copy_(0, slots, state.history)
        self.frames.index_copy_(0, slots, state.frames)

    def reset(self, slots: Tensor) -> None:
        """Put `slots` at the start of a stream."""
        self.history.index_fill_(0, slots, 0)
        self.frames.index_fill_(0, slots, 0)


@dataclass(frozen=True, slots=True)
class ChunkHistory:
    """One pass over a chunk: the layers read `before` and leave in `after` what the next chunk needs.

    `frames`: int64 [rows], the stream position of the chunk's first frame in every row.
    """

    before: Tensor
    after: Tensor
    frames: Tensor

    @classmethod
    def over(cls, state: StreamState) -> ChunkHistory:
        return cls(state.history, torch.empty_like(state.history), state.frames)

    @property
    def rows(self) -> int:
        return len(self.frames)


@dataclass(frozen=True, slots=True)
class Tail:
    """A stretch of the history: the last `steps` inputs of a layer, `width` numbers each, kept row by row."""

    offset: int
    steps: int
    width: int

    def load(self, history: ChunkHistory, into: Tensor) -> None:
        """Copy the remembered inputs to `into` [steps, rows, width]."""
        into.copy_(self._view(history.before))

    def store(self, history: ChunkHistory, inputs: Tensor) -> None:
        """Remember the last steps of `inputs` [>= steps, rows, width]."""
        self._view(history.after).copy_(inputs[inputs.shape[0] - self.steps :])

    def _view(self, history: Tensor) -> Tensor:
        """[steps, rows, width] of the history, in one operation instead of three."""
        line = history.stride(0)
        offset = history.storage_offset() + self.offset
        return history.as_strided((self.steps, len(history), self.width), (self.width, line, 1), offset)


def select_steps(x: Tensor, first: Tensor, length: int) -> Tensor:
    """Takes `length` steps of each row of `x` [B, T, width], from step `first[b]` on; a row's last step is repeated.

    `first`: int64 [B]. Returns [B, length, width].
    """
    steps = (first.unsqueeze(1) + torch.arange(length, device=x.device)).clamp(max=x.shape[1] - 1)
    return x.gather(1, steps.unsqueeze(2).expand(-1, -1, x.shape[2]))


class HistoryLayout:
    """Hands out the stretches of the history row while the layers are being built."""

    def __init__(self) -> None:
        self.width = 0

    def reserve(self, steps: int, width: int) -> Tail:
        """A stretch for `steps` inputs of `width` numbers."""
        tail = Tail(self.width, steps, width)
        self.width += steps * width
        return tail
