"""The codec decoder's weights as its GPU kernels read them, taken from the folded layers of `decoder.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .history import Tail
from .layers import CausalConv, ConvNext, OutputConv, ResidualUnit, Snake, VocoderBlock
from .transformer import WindowedLayer


@dataclass(frozen=True, slots=True)
class Batch:
    """Whose the rows of a pass are: int64 [B] `slots`, `fresh` (1 where one begins) and `frames` decoded before."""

    slots: Tensor
    fresh: Tensor
    frames: Tensor

    @property
    def rows(self) -> int:
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class Input:
    """What a layer reads: `channels` a step and `reach` steps of the past, kept at `offset` of a stream's history.

    `wave`: frequency and gain of the snake that its input goes through first, float32 [channels] each.
    """

    channels: int
    reach: int = 0
    offset: int = 0
    wave: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, tail: Tail, wave: tuple[Tensor, Tensor] | None = None) -> Input:
        return cls(tail.width, tail.steps, tail.offset, wave)

    @classmethod
    def of_output(cls, output: OutputConv, snake: Snake, device: torch.device) -> Input:
        return cls.of(output.tail, _wave(snake, output.inputs, device))


@dataclass(frozen=True, slots=True)
class Conv:
    """`weight`: [taps * inputs, stride * channels]; `bias`: float32 [stride * channels]."""

    input: Input
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
    ) -> Conv:
        return cls(
            input=Input.of(conv.tail, None if snake is None else _wave(snake, conv.inputs, device)),
            weight=conv.weight.to(device, dtype),
            bias=conv.bias.to(device, torch.float32),
            taps=conv.kernel,
            dilation=conv.dilation,
            stride=stride,
            channels=conv.outputs // stride,
        )

    @classmethod
    def pointwise(cls, unit: ResidualUnit, dtype: torch.dtype, device: torch.device) -> Conv:
        """The end of a residual unit; its bias is repeated there."""
        inputs, outputs = unit.pointwise.shape
        return cls(
            input=Input(inputs, wave=_wave(unit.outer, inputs, device)),
            weight=unit.pointwise.to(device, dtype),
            bias=unit.bias[:outputs].to(device, torch.float32),
            taps=1,
            dilation=1,
            stride=1,
            channels=outputs,
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """A residual unit: the dilated convolution and the pointwise one."""

    conv: Conv
    pointwise: Conv


@dataclass(frozen=True, slots=True)
class Block:
    """A vocoder block: its upsampling, then its residual units."""

    conv: Conv
    units: list[Unit]

    @classmethod
    def of(cls, block: VocoderBlock, dtype: torch.dtype, device: torch.device) -> Block:
        up = block.upsampling
        return cls(
            conv=Conv.of(up.conv, dtype, device, up.stride, block.snake),
            units=[
                Unit(Conv.of(unit.conv, dtype, device, snake=unit.inner), Conv.pointwise(unit, dtype, device))
                for unit in block.units
            ],
        )


@dataclass(frozen=True, slots=True)
class Refine:
    """ConvNeXt: `taps` [kernel, channels] and `bias` float32; `widen`, `narrow`: weight and bias."""

    input: Input
    taps: Tensor
    bias: Tensor
    widen: tuple[Tensor, Tensor]
    narrow: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, layer: ConvNext, dtype: torch.dtype, device: torch.device) -> Refine:
        (widen, widen_bias), (narrow, narrow_bias) = layer.widen, layer.narrow
        return cls(
            input=Input.of(layer.tail),
            taps=layer.depthwise.t().contiguous().to(device, torch.float32),
            bias=layer.bias.to(device, torch.float32),
            widen=(widen.to(device, dtype), widen_bias.to(device, dtype)),
            narrow=(narrow.to(device, dtype), narrow_bias.to(device, dtype)),
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """A transformer layer; `history`: keys and values of the window; `heads`: their number and width."""

    history: Input
    heads: tuple[int, int]
    qkv: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: WindowedLayer, dtype: torch.dtype, device: torch.device) -> Layer:
        matrices = (matrix.to(device, dtype) for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down))
        return cls(Input.of(layer.tail), (layer.heads, layer.head_dim), *matrices)


def _wave(snake: Snake, channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    # The CPU's loops want them repeated.
    return (
        snake.frequency[:channels].to(device, torch.float32),
        snake.gain[:channels].to(device, torch.float32),
    )
