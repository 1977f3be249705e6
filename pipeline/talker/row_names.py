"""Whose a row is, written behind its hidden state: vLLM hands hidden states on, in an order of its own, and no more.

Bytes are exact in any dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHANNELS = 8
"""Slot and position, two bytes each; the rest is zero, so that rows stay aligned to what a GPU loads at once."""


def name_rows(hidden: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
    """[n, width + CHANNELS] of `hidden` [n, width] and `slots`, `positions`: int64 [n]."""
    nothing = torch.zeros_like(slots)
    names = torch.stack([slots >> 8, slots & 255, positions >> 8, positions & 255] + [nothing] * 4, -1)
    return torch.cat([hidden, names.to(hidden.dtype)], -1)


def read_names(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, slots and positions of rows of `name_rows`."""
    hidden, names = torch.split(states, [states.shape[1] - CHANNELS, CHANNELS], -1)
    names = names.float().round().long()
    return hidden, names[:, 0] << 8 | names[:, 1], names[:, 2] << 8 | names[:, 3]
