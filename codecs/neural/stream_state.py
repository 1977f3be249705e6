"""State of streams between chunks: one row of numbers per stream, in which every layer has its range."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of streams at a chunk boundary, one row each.

    `history`: [rows, width], what the layers keep; `frames`: int64 [rows], frames decoded so far. A stream at its
    start is all zeros. The type holds the slab of a decoder (one row per slot) as well as the rows of one batch.
    """

    history: Tensor
    frames: Tensor

    @property
    def rows(self) -> int:
        return len(self.frames)

    def take(self, slots: Tensor) -> StreamState:
        """Returns copies of the rows `slots`, int64 [B]."""
        return StreamState(self.history.index_select(0, slots), self.frames.index_select(0, slots))

    def put(self, slots: Tensor, state: StreamState) -> None:
        """Writes the rows of `state` to `slots`, int64 [B], distinct if their states matter."""
        self.history.index_copy_(0, slots, state.history)
        self.frames.index_copy_(0, slots, state.frames)

    def reset(self, slots: Tensor) -> None:
        """Resets `slots` to the start of a stream."""
        self.history.index_fill_(0, slots, 0)
        self.frames.index_fill_(0, slots, 0)


@dataclass(frozen=True, slots=True)
class ChunkHistory:
    """State during one pass over a chunk: layers read `before` and write to `after` what the next chunk needs.

    `frames`: int64 [rows], position in its stream of each row's first frame.
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
    """A layer's range of the history: its last `steps` inputs, `width` numbers each, for every row."""

    offset: int
    steps: int
    width: int

    def load(self, history: ChunkHistory, into: Tensor) -> None:
        """Copies the kept inputs to `into` [steps, rows, width]."""
        into.copy_(self._view(history.before))

    def store(self, history: ChunkHistory, inputs: Tensor) -> None:
        """Keeps the last steps of `inputs` [>= steps, rows, width]."""
        self._view(history.after).copy_(inputs[inputs.shape[0] - self.steps :])

    def _view(self, history: Tensor) -> Tensor:
        """Returns the range as [steps, rows, width], in one operation instead of three."""
        row_stride = history.stride(0)
        offset = history.storage_offset() + self.offset
        return history.as_strided((self.steps, len(history), self.width), (self.width, row_stride, 1), offset)


def select_steps(x: Tensor, first: Tensor, length: int) -> Tensor:
    """Takes `length` steps of each row of `x` [B, T, width], from step `first[b]` on; a row's last step is repeated.

    `first`: int64 [B]. Returns [B, length, width].
    """
    steps = (first.unsqueeze(1) + torch.arange(length, device=x.device)).clamp(max=x.shape[1] - 1)
    return x.gather(1, steps.unsqueeze(2).expand(-1, -1, x.shape[2]))


class HistoryLayout:
    """Assigns ranges of the history row to layers while they are built."""

    def __init__(self) -> None:
        self.width = 0

    def reserve(self, steps: int, width: int) -> Tail:
        """Assigns a range for `steps` inputs of `width` numbers."""
        tail = Tail(self.width, steps, width)
        self.width += steps * width
        return tail
