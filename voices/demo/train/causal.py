"""Causal convolutions, through the convolution library or as matrix products.

The decoder's channels are few and its sequences long. Which of the two trains faster depends on library, compiler and
GPU; both are the same sum, and `use_products` chooses for a whole model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ALIGNMENT = 8
"""Rows of a half-precision product that its fast kernels ask for."""


def _product(weight: Tensor, x: Tensor) -> Tensor:
    """[out, in] times [batch, in, T]."""
    return torch.bmm(weight.expand(x.shape[0], -1, -1), x)


def _shifted(x: Tensor, taps: int, dilation: int) -> Tensor:
    """[batch, c, T] -> [batch, taps * c rounded up, T]: the input as each tap sees it, the oldest first."""
    length = x.shape[-1]
    padded = F.pad(x, ((taps - 1) * dilation, 0))
    views = [padded[..., tap * dilation : tap * dilation + length] for tap in range(taps)]
    spare = -taps * x.shape[1] % _ALIGNMENT
    if spare:
        views.append(x.new_zeros(x.shape[0], spare, length))
    return torch.cat(views, 1)


class CausalConv(nn.Module):
    """The published `CausalConvNet`: zeros on the left, stride one."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.kernel, self.dilation, self.depthwise = kernel, dilation, groups > 1
        self.products = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.products:
            return self.conv(F.pad(x, ((self.kernel - 1) * self.dilation, 0)))
        weight, bias = self.conv.weight, self.conv.bias
        length = x.shape[-1]
        if self.depthwise:
            padded = F.pad(x, ((self.kernel - 1) * self.dilation, 0))
            total = bias[:, None]
            for tap in range(self.kernel):
                total = total + weight[:, :, tap] * padded[..., tap * self.dilation : tap * self.dilation + length]
            return total
        if self.kernel == 1:
            return _product(weight[..., 0], x) + bias[:, None]
        matrix = weight.transpose(1, 2).flatten(1)
        columns = _shifted(x, self.kernel, self.dilation)
        return _product(F.pad(matrix, (0, columns.shape[1] - matrix.shape[1])), columns) + bias[:, None]


class CausalTransposedConv(nn.Module):
    """The published `CausalTransConvNet`: kernel of one or two strides, what overhangs on the right cut off."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self.reach, self.stride = kernel // stride, stride
        self.products = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.products:
            return self.conv(x)[..., : x.shape[-1] * self.stride]
        weight, bias = self.conv.weight, self.conv.bias
        inputs, outputs, _ = weight.shape
        # Sample j of step t is heard from step t through tap j, and from step t - 1 through tap j + stride.
        matrix = weight.view(inputs, outputs, self.reach, self.stride).flip(2).permute(1, 3, 2, 0)
        y = _product(matrix.reshape(outputs * self.stride, -1), _shifted(x, self.reach, 1)[:, : self.reach * inputs])
        y = y.view(x.shape[0], outputs, self.stride, x.shape[-1]).transpose(2, 3)
        return y.reshape(x.shape[0], outputs, -1) + bias[:, None]


def use_products(model: nn.Module, yes: bool) -> None:
    for module in model.modules():
        if isinstance(module, CausalConv | CausalTransposedConv):
            module.products = yes
