"""The vocoder's layers on a CPU: their folded weights, and the compiled functions of `cpu/vocoder.py` that run them.

An activation is [lines, channels]; line step * rows + row is a step of a stream.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .cpu.panels import Array, PanelMatrix, as_array, repeated_parameters
from .stream_state import ChunkHistory, HistoryLayout


class Snake:
    """SnakeBeta: x + gain * sin^2(frequency * x), with a frequency and a gain per channel."""

    def __init__(self, frequency: Tensor, gain: Tensor) -> None:
        """`frequency`, `gain`: [channels]."""
        self.frequency, self.gain = frequency, gain
        self.of_lines = repeated_parameters(frequency, gain)
        """Both, repeated for several lines."""


class CausalConv:
    """Causal convolution over time; inputs before the chunk come from the history.

    With a `stride` above 1, a step has `stride` outputs, and so the layer is a transposed convolution.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        layout: HistoryLayout,
        dilation: int = 1,
        stride: int = 1,
        snake: Snake | None = None,
    ) -> None:
        """`weight`: [stride * outputs, inputs, kernel]; `bias`: [stride * outputs]; `snake`: of the input."""
        width, self.inputs, self.kernel = weight.shape
        self.outputs, self.stride, self.dilation, self.snake = width // stride, stride, dilation, snake
        self.weight = PanelMatrix.of(weight.permute(2, 1, 0).reshape(-1, width))
        """[kernel * inputs, stride * outputs]."""
        self.bias = bias.contiguous()
        self.tail = layout.reserve((self.kernel - 1) * dilation, self.inputs)
        self._bias = as_array(self.bias)
        none: list[Array] = [self._bias[:0]] * 2
        self._snake = none if snake is None else snake.of_lines

    def __call__(self, x: Array, history: ChunkHistory) -> Array:
        """Maps [lines, inputs] to [lines * stride, outputs]."""
        from .cpu.vocoder import convolve

        out = np.empty((len(x) * self.stride, self.outputs), x.dtype)
        convolve(
            x, history.history, history.slots, self.tail.offset, self.kernel, self.dilation, *self._snake,
            self.weight.panels, self._bias, self.stride, out,
        )  # fmt: skip  # one argument list
        return out


def upsampling(
    weight: Tensor, bias: Tensor, stride: int, layout: HistoryLayout, snake: Snake | None = None
) -> CausalConv:
    """Returns the transposed convolution whose kernel is a multiple of the stride, without its last outputs.

    It omits kernel - stride outputs. Output phase r of step t is sum_j x[t - j] @ weight[..., r + j * stride]: an
    ordinary causal convolution with one output group per phase. `weight`: [inputs, outputs, kernel]; `bias`: [outputs],
    or [stride, outputs] by phase.
    """
    inputs, outputs, kernel = weight.shape
    taps = weight.view(inputs, outputs, kernel // stride, stride).flip(2)  # oldest input first
    phases = taps.permute(3, 1, 0, 2).reshape(stride * outputs, inputs, kernel // stride)
    return CausalConv(phases, bias.expand(stride, outputs).flatten(), layout, stride=stride, snake=snake)


class ResidualUnit:
    """x + conv1x1(snake(conv7(snake(x)))), with a dilation of the convolution of 7 taps."""

    def __init__(self, conv: CausalConv, outer: Snake, pointwise: Tensor, bias: Tensor) -> None:
        """`conv` includes the first snake; `pointwise`: [outputs, inputs]; `bias`: [outputs]."""
        assert conv.snake is not None
        self.conv, self.outer = conv, outer
        self.pointwise = PanelMatrix.of(pointwise.t())
        """[inputs, outputs]."""
        self.bias = bias
        padded = repeated_parameters(conv.bias, outer.frequency, outer.gain, bias, pad=True)
        self._conv_bias, self._frequency, self._gain, self._bias = padded

    def __call__(self, x: Array, history: ChunkHistory) -> None:
        """Adds the unit's branch to `x` [lines, channels], in place."""
        from .cpu.vocoder import residual_unit

        conv = self.conv
        assert conv.snake is not None
        residual_unit(
            x, history.history, history.slots, conv.tail.offset, conv.kernel, conv.dilation, *conv.snake.of_lines,
            conv.weight.panels, self._conv_bias, self._frequency, self._gain, self.pointwise.panels, self._bias,
        )  # fmt: skip  # one argument list


class VocoderBlock:
    """Upsampling, which includes a snake, and three residual units."""

    def __init__(self, upsampling: CausalConv, units: list[ResidualUnit]) -> None:
        self.upsampling, self.units = upsampling, units

    def __call__(self, x: Array, history: ChunkHistory) -> Array:
        """Maps [lines, channels] to [lines * rate, channels / 2]."""
        x = self.upsampling(x, history)
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
        self.depthwise, self.bias = depthwise.t().contiguous(), bias
        """[kernel, channels], and [channels]."""
        self.widen, self.narrow = PanelMatrix.of(widen[0].t()), PanelMatrix.of(narrow[0].t())
        self.widen_bias, self.narrow_bias = widen[1], narrow[1]
        self.tail = layout.reserve(len(self.depthwise) - 1, len(bias))

    def __call__(self, x: Array, history: ChunkHistory) -> None:
        """Adds the branch to `x` [lines, channels], in place."""
        from .cpu.vocoder import conv_next

        conv_next(
            x, history.history, history.slots, self.tail.offset, self.depthwise.numpy(), self.bias.numpy(),
            self.widen.panels, self.widen_bias.numpy(), self.narrow.panels, self.narrow_bias.numpy(), self.EPS,
        )  # fmt: skip  # one argument list


class OutputConv:
    """The last snake and convolution, to one channel."""

    def __init__(self, snake: Snake, weight: Tensor, bias: Tensor, layout: HistoryLayout) -> None:
        """`weight`: [1, inputs, kernel]; `bias`: [1]."""
        _, self.inputs, self.kernel = weight.shape
        self.snake, self.bias = snake, bias
        self.taps = weight[0].contiguous()
        """[inputs, kernel]."""
        self._panels = PanelMatrix.of(self.taps).panels
        self.tail = layout.reserve(self.kernel - 1, self.inputs)

    def __call__(self, x: Array, history: ChunkHistory) -> Array:
        """Maps [lines, inputs] to audio [rows, steps] in [-1, 1]."""
        from .cpu.vocoder import output_conv

        pcm = np.empty((history.rows, len(x) // history.rows), x.dtype)
        output_conv(
            x, history.history, history.slots, self.tail.offset, self.kernel, *self.snake.of_lines, self._panels,
            self.bias.numpy(), pcm,
        )  # fmt: skip  # one argument list
        return pcm
