"""Causal convolutions, as the published codec has them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class CausalConv(nn.Module):
    """The published `CausalConvNet`: zeros on the left, stride one."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.reach = (kernel - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x, (self.reach, 0)))
        return y


class CausalTransposedConv(nn.Module):
    """The published `CausalTransConvNet`: kernel of one or two strides, what overhangs on the right cut off."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y[..., : x.shape[-1] * self.stride]
