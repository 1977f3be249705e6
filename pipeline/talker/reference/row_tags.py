"""Slot and position of a row, appended to its hidden state.

vLLM passes hidden states from `forward` to `compute_logits`, in an order of its own and without anything else. Each
byte is one channel, which every dtype represents exactly. The kernel `final_norm` (`cuda/backbone_kernels.py`) writes
the same layout.
"""

from __future__ import annotations

import torch
from torch import Tensor

TAG_CHANNELS = 8
"""Channels: two bytes of slot, two of position, and four zeros, so that rows stay aligned for 16-byte loads."""


def append_row_tags(hidden: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
    """[n, width + TAG_CHANNELS] from `hidden` [n, width] and int64 [n] `slots`, `positions`, both below 65,536."""
    zero = torch.zeros_like(slots)
    tags = torch.stack([slots >> 8, slots & 255, positions >> 8, positions & 255] + [zero] * 4, -1)
    return torch.cat([hidden, tags.to(hidden.dtype)], -1)


def split_row_tags(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [n, width], slots and positions (int64 [n]) of rows made by `append_row_tags`."""
    hidden, tags = torch.split(states, [states.shape[1] - TAG_CHANNELS, TAG_CHANNELS], -1)
    tags = tags.float().round().long()
    return hidden, tags[:, 0] << 8 | tags[:, 1], tags[:, 2] << 8 | tags[:, 3]
