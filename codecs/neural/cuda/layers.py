"""The codec decoder's weights as its GPU kernels read them, made from the folded layers of `..layers`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..layers import CausalConv, ConvNext, OutputConv, ResidualUnit, VocoderBlock
from ..snake import Snake
from ..stream_state import Tail
from ..transformer import WindowedLayer


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """The streams of a batch: int64 [B] `slots`, `fresh` (1 where a stream begins), `frames` (decoded before)."""

    slots: Tensor
    fresh: Tensor
    frames: Tensor

    @property
    def rows(self) -> int:
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class LayerInput:
    """The input of a layer: `channels` a step, and `reach` steps of history, stored at `offset` of a stream's history.

    `snake`: frequency and gain, float32 [channels] each, of the snake that the input goes through first.
    """

    channels: int
    reach: int = 0
    offset: int = 0
    snake: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, tail: Tail, snake: tuple[Tensor, Tensor] | None = None) -> LayerInput:
        return cls(tail.width, tail.steps, tail.offset, snake)

    @classmethod
    def of_output(cls, output: OutputConv, snake: Snake, device: torch.device) -> LayerInput:
        return cls.of(output.tail, _snake(snake, output.inputs, device))


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """A causal convolution; with `stride` above 1, a transposed one.

    `weight`: [taps * inputs, stride * channels]; `bias`: float32 [stride * channels].
    """

    input: LayerInput
    weight: Tensor
    bias: Tensor
    taps: int
    dilation: int
    stride: int
    channels: int

    @classmethod
    def of(
        cls,
        conv: CausalConv,
        dtype: torch.dtype,
        device: torch.device,
        stride: int = 1,
        snake: Snake | None = None,
    ) -> ConvWeights:
        """`snake`: of its input."""
        return cls(
            input=LayerInput.of(conv.tail, None if snake is None else _snake(snake, conv.inputs, device)),
            weight=conv.weight.to(device, dtype),
            bias=conv.bias.to(device, torch.float32),
            taps=conv.kernel,
            dilation=conv.dilation,
            stride=stride,
            channels=conv.outputs // stride,
        )

    @classmethod
    def pointwise(cls, unit: ResidualUnit, dtype: torch.dtype, device: torch.device) -> ConvWeights:
        """The pointwise convolution of a residual unit, whose bias is stored repeated."""
        inputs, outputs = unit.pointwise.shape
        return cls(
            input=LayerInput(inputs, snake=_snake(unit.outer, inputs, device)),
            weight=unit.pointwise.to(device, dtype),
            bias=unit.bias[:outputs].to(device, torch.float32),
            taps=1,
            dilation=1,
            stride=1,
            channels=outputs,
        )


@dataclass(frozen=True, slots=True)
class ResidualUnitWeights:
    """A residual unit: a dilated convolution and a pointwise one."""

    conv: ConvWeights
    pointwise: ConvWeights


@dataclass(frozen=True, slots=True)
class VocoderBlockWeights:
    """A vocoder block: an upsampling convolution, then residual units."""

    conv: ConvWeights
    units: list[ResidualUnitWeights]

    @classmethod
    def of(cls, block: VocoderBlock, dtype: torch.dtype, device: torch.device) -> VocoderBlockWeights:
        up = block.upsampling
        return cls(
            conv=ConvWeights.of(up.conv, dtype, device, up.stride, block.snake),
            units=[
                ResidualUnitWeights(
                    ConvWeights.of(unit.conv, dtype, device, snake=unit.inner),
                    ConvWeights.pointwise(unit, dtype, device),
                )
                for unit in block.units
            ],
        )


@dataclass(frozen=True, slots=True)
class ConvNextWeights:
    """A ConvNeXt block: `taps` [kernel, channels] and `bias`, float32; `widen`, `narrow`: weight and bias."""

    input: LayerInput
    taps: Tensor
    bias: Tensor
    widen: tuple[Tensor, Tensor]
    narrow: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, layer: ConvNext, dtype: torch.dtype, device: torch.device) -> ConvNextWeights:
        (widen, widen_bias), (narrow, narrow_bias) = layer.widen, layer.narrow
        return cls(
            input=LayerInput.of(layer.tail),
            taps=layer.depthwise.t().contiguous().to(device, torch.float32),
            bias=layer.bias.to(device, torch.float32),
            widen=(widen.to(device, dtype), widen_bias.to(device, dtype)),
            narrow=(narrow.to(device, dtype), narrow_bias.to(device, dtype)),
        )


@dataclass(frozen=True, slots=True)
class CodecLayerWeights:
    """A transformer layer; `history`: keys and values of the window; `heads`: number and width of the heads."""

    history: LayerInput
    heads: tuple[int, int]
    qkv: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: WindowedLayer, dtype: torch.dtype, device: torch.device) -> CodecLayerWeights:
        matrices = (matrix.to(device, dtype) for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down))
        return cls(LayerInput.of(layer.tail), (layer.heads, layer.head_dim), *matrices)


def _snake(snake: Snake, channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Frequency and gain, float32 [channels] each; the CPU's layers store them repeated."""
    return (
        snake.frequency[:channels].to(device, torch.float32),
        snake.gain[:channels].to(device, torch.float32),
    )
