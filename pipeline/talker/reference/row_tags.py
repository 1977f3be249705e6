"""Whose a row is, written behind its hidden state: vLLM hands hidden states on, in an order of its own, and no more.

Bytes are exact in any dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

TAG_CHANNELS = 8
"""Slot and position, two bytes each; the rest is zero, so that rows stay aligned to what a GPU loads at once."""


def append_row_tags(hidden: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
    """[n, width + TAG_CHANNELS] of `hidden` [n, width] and `slots`, `positions`: int64 [n]."""
    nothing = torch.zeros_like(slots)
    names = torch.stack([slots >> 8, slots & 255, positions >> 8, positions & 255] + [nothing] * 4, -1)
    return torch.cat([hidden, names.to(hidden.dtype)], -1)


def split_row_tags(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, slots and positions of rows of `append_row_tags`."""
    hidden, names = torch.split(states, [states.shape[1] - TAG_CHANNELS, TAG_CHANNELS], -1)
    names = names.float().round().long()
    return hidden, names[:, 0] << 8 | names[:, 1], names[:, 2] << 8 | names[:, 3]
