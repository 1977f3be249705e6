"""The vocoder's layers, laid out [steps, rows, channels].

With time outermost the inputs that tap k of a convolution sees, for all steps and all rows, are one
contiguous matrix that begins k * dilation * rows lines further on. A convolution is then a sum of plain
matrix products, whatever the dilation and however many streams share the batch, without gathering patches and
without a row ever seeing another one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .stream_state import ChunkHistory, HistoryLayout

SQRT_HALF = 0.5**0.5


class CausalConv:
    """Convolution over time that looks only back; what lies before the chunk comes from the history."""

    FEW_LINES = 256
    """Up to so many output lines one product over gathered patches beats a product for every tap."""

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
        """An input buffer [reach + steps, rows, inputs] begun with the history, and its part to fill."""
        buffer = self.bias.new_empty(self.reach + steps, history.rows, self.inputs)
        if not self.reach:
            return buffer, buffer
        past, room = torch.split(buffer, [self.reach, steps])
        self.tail.load(history, past)
        return buffer, room

    def __call__(self, buffer: Tensor, history: ChunkHistory) -> Tensor:
        """Convolve a filled buffer of `padded` -> [steps, rows, outputs]."""
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
        """Convolve `x` [steps, rows, inputs]."""
        buffer, room = self.padded(x.shape[0], history)
        room.copy_(x)
        return self(buffer, history)


class CausalUpsampling:
    """Transposed convolution with kernel a multiple of the stride, its last kernel - stride outputs dropped.

    Output phase r of step t is sum_j x[t - j] @ weight[..., r + j * stride]: an ordinary causal convolution
    with one output group for each phase.
    """

    def __init__(self, weight: Tensor, bias: Tensor, stride: int, layout: HistoryLayout) -> None:
        """`weight`: [inputs, outputs, kernel]; `bias`: [outputs], or [stride, outputs] by phase."""
        inputs, self.outputs, kernel = weight.shape
        self.stride = stride
        taps = weight.view(inputs, self.outputs, kernel // stride, stride).flip(2)  # oldest input first
        phases = taps.permute(3, 1, 0, 2).reshape(stride * self.outputs, inputs, kernel // stride)
        self.conv = CausalConv(phases, bias.expand(stride, self.outputs).flatten(), layout)

    def __call__(self, buffer: Tensor, history: ChunkHistory) -> Tensor:
        """Upsample a filled buffer of `conv.padded` -> [steps * stride, rows, outputs]."""
        phases = self.conv(buffer, history)
        steps, rows, _ = phases.shape
        by_phase = phases.view(steps, rows, self.stride, self.outputs).transpose(1, 2)
        return by_phase.reshape(steps * self.stride, rows, self.outputs)

    def over(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """Upsample `x` [steps, rows, inputs]."""
        buffer, room = self.conv.padded(x.shape[0], history)
        room.copy_(x)
        return self(buffer, history)


class Snake:
    """SnakeBeta: x + gain * sin^2(frequency * x), with a frequency and a gain for every channel."""

    LINE = 512
    """Numbers in a line of the elementwise loops; lines of few channels are joined, or the loops crawl."""

    def __init__(self, frequency: Tensor, gain: Tensor, steps_per_frame: int) -> None:
        """`frequency`, `gain`: [channels]; a frame brings `steps_per_frame` steps of them."""
        most = max(1, self.LINE // len(gain))
        joined = max(n for n in range(1, most + 1) if steps_per_frame % n == 0)
        self.frequency, self.gain = frequency.repeat(joined), gain.repeat(joined)
        self.line = len(self.gain)

    def __call__(self, x: Tensor, out: Tensor) -> None:
        """Write the activation of `x` to `out`; both contiguous, of one shape, or the same tensor."""
        lines = x.view(-1, self.line)
        # The squared sine, not 1 - cos: that one loses the small values where the gain is large.
        wave = torch.mul(lines, self.frequency).sin_()
        wave.mul_(wave)
        torch.addcmul(lines, wave, self.gain, out=out.view(-1, self.line))


class ResidualUnit:
    """x + conv1x1(snake(conv7(snake(x)))), the wide convolution dilated."""

    def __init__(self, inner: Snake, conv: CausalConv, outer: Snake, pointwise: Tensor, bias: Tensor) -> None:
        """`pointwise`: [outputs, inputs]; `bias`: [outputs]."""
        self.inner, self.conv, self.outer = inner, conv, outer
        self.pointwise = pointwise.t().contiguous()
        self.bias = bias.repeat(inner.line // len(bias))

    def __call__(self, x: Tensor, history: ChunkHistory) -> None:
        """Add the unit's branch to `x` [steps, rows, channels], in place."""
        buffer, room = self.conv.padded(x.shape[0], history)
        self.inner(x, out=room)
        branch = self.conv(buffer, history)
        self.outer(branch, out=branch)
        x.view(-1, len(self.bias)).add_(self.bias)
        x.view(-1, x.shape[2]).addmm_(branch.view(-1, x.shape[2]), self.pointwise)


class VocoderBlock:
    """Snake, upsampling, three residual units."""

    def __init__(self, snake: Snake, upsampling: CausalUpsampling, units: list[ResidualUnit]) -> None:
        self.snake, self.upsampling, self.units = snake, upsampling, units

    def __call__(self, x: Tensor, history: ChunkHistory) -> Tensor:
        """[steps, rows, channels] -> [steps * rate, rows, channels / 2]."""
        buffer, room = self.upsampling.conv.padded(x.shape[0], history)
        self.snake(x, out=room)
        x = self.upsampling(buffer, history)
        for unit in self.units:
            unit(x, history)
        return x


class ConvNext:
    """x + pointwise(gelu(pointwise(norm(depthwise7(x))))), with all scales in the pointwise weights."""

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
        """[steps, rows, channels] -> the same shape."""
        steps, rows, channels = x.shape
        buffer = x.new_empty(self.reach + steps, rows, channels)
        self.tail.load(history, buffer[: self.reach])
        buffer[self.reach :] = x
        self.tail.store(history, buffer)
        seen = buffer.unfold(0, self.reach + 1, 1)  # [steps, rows, channels, kernel]
        mixed = torch.linalg.vecdot(seen, self.depthwise).add_(self.bias)
        mixed = torch.nn.functional.layer_norm(mixed, (channels,), eps=self.EPS)
        wide = torch.nn.functional.linear(mixed, *self.widen)
        # GELU by its formula: on a few lines torch's own spends most of its time choosing a kernel.
        wide.mul_((wide * SQRT_HALF).erf_().add_(1).mul_(0.5))
        return x + torch.nn.functional.linear(wide, *self.narrow)


class OutputConv:
    """The last convolution, to one channel: one product for all taps, then a sum along the diagonals."""

    def __init__(self, weight: Tensor, bias: Tensor, layout: HistoryLayout) -> None:
        """`weight`: [1, inputs, kernel]; `bias`: [1]."""
        _, self.inputs, self.kernel = weight.shape
        self.taps = weight[0].contiguous()
        self.bias = bias
        self.tail = layout.reserve(self.kernel - 1, self.inputs)

    def __call__(self, x: Tensor, snake: Snake, history: ChunkHistory) -> Tensor:
        """Activate and convolve `x` [steps, rows, inputs] -> [rows, steps]."""
        steps, rows, _ = x.shape
        reach = self.kernel - 1
        buffer = x.new_empty(reach + steps, rows, self.inputs)
        self.tail.load(history, buffer[:reach])
        snake(x, out=buffer[reach:])
        self.tail.store(history, buffer)
        products = buffer.view(-1, self.inputs) @ self.taps  # [(reach + steps) * rows, kernel]
        line = rows * self.kernel
        diagonals = products.as_strided((rows, steps, self.kernel), (self.kernel, line, line + 1))
        return diagonals.sum(2).add_(self.bias)
