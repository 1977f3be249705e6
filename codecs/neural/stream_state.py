"""State of streams between chunks: one row of numbers per stream, in which every layer has its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
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

    def copy(self) -> StreamState:
        return StreamState(self.history.clone(), self.frames.clone())

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
    """State during one pass over a chunk: each layer reads what it kept, and replaces it by what the next chunk needs.

    `history`: [all rows, width]; `slots`: int64 [B], the row of each stream of the batch; `frames`: int64 [B], position
    in its stream of each one's first frame.
    """

    history: NDArray[Any]
    slots: NDArray[Any]
    frames: NDArray[Any]

    @classmethod
    def over(cls, state: StreamState, slots: Tensor) -> ChunkHistory:
        """Of the rows `slots` of `state`, int64 [B], distinct if their states matter."""
        return cls(state.history.numpy(), slots.numpy(), state.frames.index_select(0, slots).numpy())

    @property
    def rows(self) -> int:
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class Tail:
    """A layer's range of the history: its last `steps` inputs, `width` numbers each, for every row."""

    offset: int
    steps: int
    width: int


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
