"""The vocoder's layers on a CPU, with tensors laid out [steps, rows, channels].

With time outermost, the inputs of tap k of a convolution, for all steps and all rows, are one contiguous matrix that
begins k * dilation * rows rows later. A convolution is then a sum of plain matrix products for any dilation and any
number of streams, without gathering patches and without mixing rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .snake import Snake
from .stream_state import ChunkHistory, HistoryLayout

SQRT_HALF = 0.5**0.5


class CausalConv:
    """Causal convolution over time; inputs before the chunk come from the history."""

    FEW_LINES = 256
    """Up to this many output lines one product over gathered patches is faster than a product per tap."""

    def __init__(self, weight: Tensor, bias: Tensor, layout: HistoryLayout, dilation: int = 1) -> None:
        """`weight`: [outputs, inputs, kernel]; `bias`: [outputs]."""
        self.outputs, self.inputs, self.kernel = weight.shape
        self.dilation = dilation
        self.reach = (self.kernel - 1) * dilation
        self.weight = weight.permute(2, 1, 0).reshape(-1, self.outputs).contiguous()
        self.taps = torch.split(self.weight, self.inputs)
        self.bias = bias
        self.tail = layout.reserve(self.reach, self.inputs)

    def padded(self, steps: int, history: ChunkHistory) -> tuple[Tensor, Tensor]:
        """Returns an input buffer [reach + steps, rows, inputs] that begins with the history, and its part to fill."""
        buffer = self.bias.new_empty(self.reach + steps, history.rows, self.inputs)
        if not self.reach:
            return buffer, buffer
        past, new = torch.split(buffer, [self.reach, steps])
        self.tail.load(history, past)
        return buffer, new

    def __call__(self, buffer: Tensor, history: ChunkHistory) -> Tensor:
        """Convolves a filled buffer of `padded` to [steps, rows, outputs]."""
        length, rows, width = buffer.shape
        steps = length - self.reach
        if self.reach:
            self.tail.store(history, buffer)
        lines, tap_stride = steps * rows, self.dilation * rows * width
        if lines <= self.FEW_LINES:
            patches = buffer.as_strided((lines, self.kernel, width), (width, tap_stride, 1))
            result = torch.addmm(self.bias, patches.reshape(lines, -1), self.weight)
        else:
            result = torch.addmm(self.bias, buffer.as_strided((lines, width), (width, 1)), self.taps[0])
            for k in range(1, self.kernel):
                result.addmm_(buffer.as_strided((lines, width), (width, 1), k * tap_stride), self.taps[k])
        return result.view(steps, rows, self.outputs)

    def over(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """Convolves `x` [steps, rows, inputs]."""
        buffer, new = self.padded(x.shape[0], history)
        new.copy_(x)
        return self(buffer, history)


class CausalUpsampling:
    """Transposed convolution whose kernel is a multiple of the stride, without its last kernel - stride outputs.

    Output phase r of step t is sum_j x[t - j] @ weight[..., r + j * stride]: an ordinary causal convolution with one
    output group per phase.
    """

    def __init__(self, weight: Tensor, bias: Tensor, stride: int, layout: HistoryLayout) -> None:
        """`weight`: [inputs, outputs, kernel]; `bias`: [outputs], or [stride, outputs] by phase."""
        inputs, self.outputs, kernel = weight.shape
        self.stride = stride
        taps = weight.view(inputs, self.outputs, kernel // stride, stride).flip(2)  # oldest input first
        phases = taps.permute(3, 1, 0, 2).reshape(stride * self.outputs, inputs, kernel // stride)
        self.conv = CausalConv(phases, bias.expand(stride, self.outputs).flatten(), layout)

    def __call__(self, buffer: Tensor, history: ChunkHistory) -> Tensor:
        """Upsamples a filled buffer of `conv.padded` to [steps * stride, rows, outputs]."""
        phases = self.conv(buffer, history)
        steps, rows, _ = phases.shape
        by_phase = phases.view(steps, rows, self.stride, self.outputs).transpose(1, 2)
        return by_phase.reshape(steps * self.stride, rows, self.outputs)

    def over(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """Upsamples `x` [steps, rows, inputs]."""
        buffer, new = self.conv.padded(x.shape[0], history)
        new.copy_(x)
        return self(buffer, history)


class ResidualUnit:
    """x + conv1x1(snake(conv7(snake(x)))), with a dilation of the convolution of 7 taps."""

    def __init__(self, inner: Snake, conv: CausalConv, outer: Snake, pointwise: Tensor, bias: Tensor) -> None:
        """`pointwise`: [outputs, inputs]; `bias`: [outputs]."""
        self.inner, self.conv, self.outer = inner, conv, outer
        self.pointwise = pointwise.t().contiguous()
        self.bias = bias.repeat(inner.line // len(bias))

    def __call__(self, x: Tensor, history: ChunkHistory) -> None:
        """Adds the unit's branch to `x` [steps, rows, channels], in place."""
        buffer, new = self.conv.padded(x.shape[0], history)
        self.inner(x, out=new)
        branch = self.conv(buffer, history)
        self.outer(branch, out=branch)
        x.view(-1, len(self.bias)).add_(self.bias)
        x.view(-1, x.shape[2]).addmm_(branch.view(-1, x.shape[2]), self.pointwise)


class VocoderBlock:
    """Snake, upsampling, and three residual units."""

    def __init__(self, snake: Snake, upsampling: CausalUpsampling, units: list[ResidualUnit]) -> None:
        self.snake, self.upsampling, self.units = snake, upsampling, units

    def __call__(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """Maps [steps, rows, channels] to [steps * rate, rows, channels / 2]."""
        buffer, new = self.upsampling.conv.padded(x.shape[0], history)
        self.snake(x, out=new)
        x = self.upsampling(buffer, history)
        for unit in self.units:
            unit(x, history)
        return x


class ConvNext:
    """x + pointwise(gelu(pointwise(norm(depthwise7(x))))), with all scales folded into the pointwise weights."""

    EPS = 1e-6

    def __init__(
        self,
        depthwise: Tensor,
        bias: Tensor,
        widen: tuple[Tensor, Tensor],
        narrow: tuple[Tensor, Tensor],
        layout: HistoryLayout,
    ) -> None:
        """`depthwise`: [channels, kernel]; `widen`, `narrow`: weight [outputs, inputs] and bias."""
        self.depthwise, self.bias = depthwise, bias
        self.widen, self.narrow = widen, narrow
        self.reach = depthwise.shape[1] - 1
        self.tail = layout.reserve(self.reach, len(bias))

    def __call__(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """Maps [steps, rows, channels] to the same shape."""
        steps, rows, channels = x.shape
        buffer = x.new_empty(self.reach + steps, rows, channels)
        self.tail.load(history, buffer[: self.reach])
        buffer[self.reach :] = x
        self.tail.store(history, buffer)
        window = buffer.unfold(0, self.reach + 1, 1)  # [steps, rows, channels, kernel]
        normed = torch.linalg.vecdot(window, self.depthwise).add_(self.bias)
        normed = torch.nn.functional.layer_norm(normed, (channels,), eps=self.EPS)
        wide = torch.nn.functional.linear(normed, *self.widen)
        # GELU by its formula: on few rows torch's own spends most of its time choosing a kernel.
        wide.mul_((wide * SQRT_HALF).erf_().add_(1).mul_(0.5))
        return x + torch.nn.functional.linear(wide, *self.narrow)


class OutputConv:
    """The last convolution, to one channel: one product for all taps, then a sum along diagonals."""

    def __init__(self, weight: Tensor, bias: Tensor, layout: HistoryLayout) -> None:
        """`weight`: [1, inputs, kernel]; `bias`: [1]."""
        _, self.inputs, self.kernel = weight.shape
        self.taps = weight[0].contiguous()
        self.bias = bias
        self.tail = layout.reserve(self.kernel - 1, self.inputs)

    def __call__(self, x: Tensor, snake: Snake, history: ChunkHistory) -> Tensor:
        """Applies `snake` and convolves: [steps, rows, inputs] to [rows, steps]."""
        steps, rows, _ = x.shape
        reach = self.kernel - 1
        buffer = x.new_empty(reach + steps, rows, self.inputs)
        self.tail.load(history, buffer[:reach])
        snake(x, out=buffer[reach:])
        self.tail.store(history, buffer)
        products = buffer.view(-1, self.inputs) @ self.taps  # [(reach + steps) * rows, kernel]
        step_stride = rows * self.kernel
        strides = (self.kernel, step_stride, step_stride + 1)
        diagonals = products.as_strided((rows, steps, self.kernel), strides)
        return diagonals.sum(2).add_(self.bias)
