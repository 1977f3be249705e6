"""The codec decoder's weights as its GPU kernels read them, taken from the folded layers of `decoder.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..layers import CausalConv, ConvNext, OutputConv, ResidualUnit, Snake, VocoderBlock
from ..stream_state import Tail
from ..transformer import WindowedLayer


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Whose the rows of a pass are: int64 [B] `slots`, `fresh` (1 where one begins) and `frames` decoded before."""

    slots: Tensor
    fresh: Tensor
    frames: Tensor

    @property
    def rows(self) -> int:
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class LayerInput:
    """What a layer reads: `channels` a step and `reach` steps of the past, kept at `offset` of a stream's history.

    `snake`: frequency and gain of the snake that its input goes through first, float32 [channels] each.
    """

    channels: int
    reach: int = 0
    offset: int = 0
    snake: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, tail: Tail, wave: tuple[Tensor, Tensor] | None = None) -> LayerInput:
        return cls(tail.width, tail.steps, tail.offset, wave)

    @classmethod
    def of_output(cls, output: OutputConv, snake: Snake, device: torch.device) -> LayerInput:
        return cls.of(output.tail, _wave(snake, output.inputs, device))


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """`weight`: [taps * inputs, stride * channels]; `bias`: float32 [stride * channels]."""

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
        return cls(
            input=LayerInput.of(conv.tail, None if snake is None else _wave(snake, conv.inputs, device)),
            weight=conv.weight.to(device, dtype),
            bias=conv.bias.to(device, torch.float32),
            taps=conv.kernel,
            dilation=conv.dilation,
            stride=stride,
            channels=conv.outputs // stride,
        )

    @classmethod
    def pointwise(cls, unit: ResidualUnit, dtype: torch.dtype, device: torch.device) -> ConvWeights:
        """The end of a residual unit; its bias is repeated there."""
        inputs, outputs = unit.pointwise.shape
        return cls(
            input=LayerInput(inputs, snake=_wave(unit.outer, inputs, device)),
            weight=unit.pointwise.to(device, dtype),
            bias=unit.bias[:outputs].to(device, torch.float32),
            taps=1,
            dilation=1,
            stride=1,
            channels=outputs,
        )


@dataclass(frozen=True, slots=True)
class ResidualUnitWeights:
    """A residual unit: the dilated convolution and the pointwise one."""

    conv: ConvWeights
    pointwise: ConvWeights


@dataclass(frozen=True, slots=True)
class VocoderBlockWeights:
    """A vocoder block: its upsampling, then its residual units."""

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
    """ConvNeXt: `taps` [kernel, channels] and `bias` float32; `widen`, `narrow`: weight and bias."""

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
    """A transformer layer; `history`: keys and values of the window; `heads`: their number and width."""

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


def _wave(snake: Snake, channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    # The CPU's loops want them repeated.
    return (
        snake.frequency[:channels].to(device, torch.float32),
        snake.gain[:channels].to(device, torch.float32),
    )
