"""The codec decoder's weights as its GPU kernels read them, made from the folded layers of `..layers`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..cpu.panels import PanelMatrix
from ..layers import CausalConv, ConvNext, OutputConv, ResidualUnit, Snake, VocoderBlock
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
    def of_output(cls, output: OutputConv, device: torch.device) -> LayerInput:
        return cls.of(output.tail, _snake(output.snake, device))


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
    def of(cls, conv: CausalConv, dtype: torch.dtype, device: torch.device) -> ConvWeights:
        return cls(
            input=LayerInput.of(conv.tail, None if conv.snake is None else _snake(conv.snake, device)),
            weight=conv.weight.dense().to(device, dtype),
            bias=conv.bias.to(device, torch.float32),
            taps=conv.kernel,
            dilation=conv.dilation,
            stride=conv.stride,
            channels=conv.outputs,
        )

    @classmethod
    def pointwise(cls, unit: ResidualUnit, dtype: torch.dtype, device: torch.device) -> ConvWeights:
        """The pointwise convolution of a residual unit."""
        weight = unit.pointwise.dense()
        inputs, outputs = weight.shape
        return cls(
            input=LayerInput(inputs, snake=_snake(unit.outer, device)),
            weight=weight.to(device, dtype),
            bias=unit.bias.to(device, torch.float32),
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
        return cls(
            conv=ConvWeights.of(block.upsampling, dtype, device),
            units=[
                ResidualUnitWeights(
                    ConvWeights.of(unit.conv, dtype, device), ConvWeights.pointwise(unit, dtype, device)
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
        return cls(
            input=LayerInput.of(layer.tail),
            taps=layer.depthwise.to(device, torch.float32),
            bias=layer.bias.to(device, torch.float32),
            widen=(_linear(layer.widen, dtype, device), layer.widen_bias.to(device, dtype)),
            narrow=(_linear(layer.narrow, dtype, device), layer.narrow_bias.to(device, dtype)),
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
        matrices = (_linear(matrix, dtype, device) for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down))
        return cls(LayerInput.of(layer.tail), (layer.heads, layer.head_dim), *matrices)


def _linear(matrix: PanelMatrix, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A matrix [inputs, outputs] as `torch.nn.functional.linear` takes it, [outputs, inputs]."""
    return matrix.dense().t().contiguous().to(device, dtype)


def _snake(snake: Snake, device: torch.device) -> tuple[Tensor, Tensor]:
    """Frequency and gain, float32 [channels] each."""
    return snake.frequency.to(device, torch.float32), snake.gain.to(device, torch.float32)
