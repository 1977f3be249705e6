"""The codec decoder on a GPU: the weights and the streams of `decoder.py`, in half precision where that is safe.

Products are of half precision numbers, summed in float32, as are norms and sines; what lies between two layers of the
vocoder is half as well. A stream's history stays on the device, in a row of a slab.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import triton
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear

from ..decoder import CodecDecoder
from ..layers import ConvNext
from ..stream_state import select_steps
from ..transformer import rope_rotations
from .kernels import add_rmsnorm, attend_window, convolve, depthwise_conv_norm, output_conv, swiglu
from .layers import (
    CodecLayerWeights,
    ConvNextWeights,
    ConvWeights,
    DecodeBatch,
    LayerInput,
    ResidualUnitWeights,
    VocoderBlockWeights,
)
from .workspace import PassWorkspace, Workspace

MANY_LINES = 2048
"""Output lines from which a convolution's tiles are large: enough of them to keep every multiprocessor busy."""
MANY_NUMBERS = 1 << 21
"""Likewise of lines times columns."""


@dataclass(frozen=True, slots=True)
class ConvTile:
    """What a program of `convolve` computes: `lines` by `columns`, `span` inputs at a time, `stages` on the way."""

    lines: int
    columns: int
    span: int
    stages: int


def conv_tile(conv: ConvWeights, width: int, lines: int) -> ConvTile:
    """As measured on an H200, batches of 1, 32 and 128 streams."""
    span = 64 if conv.input.channels % 64 == 0 else 32
    if lines < MANY_LINES and lines * width < MANY_NUMBERS:
        return ConvTile(16 if lines <= 64 else 64, 32, 2 * span, 4)
    if conv.taps == 1:
        # These move more than they multiply.
        return ConvTile(64, 64, 64, 3) if span == 64 else ConvTile(128, 32, 32, 4)
    if conv.stride > 1:
        return ConvTile(64, 128, span, 3 if span == 64 else 4)
    if width % 128 == 0 and lines > 2 * MANY_LINES:
        return ConvTile(128, 128, 64, 3)
    return ConvTile(128, 64, 64, 3) if span == 64 else ConvTile(128, 128, 32, 4)


class UnitKernel(Protocol):
    """A residual unit in one kernel, with the snake behind it."""

    def supports(self, steps: int, rows: int) -> bool:
        """Whether it can be used for so many output steps of so many streams."""

    def __call__(self, source: Tensor, residual: Tensor, onward: Tensor) -> None:
        """`source`: the unit's input, history included; `residual`: added to; `onward`: the next layer's input."""


MakeUnit = Callable[[ResidualUnitWeights, LayerInput], UnitKernel | None]
"""Of a unit and what reads its output; None where it cannot be had."""


@dataclass(frozen=True, slots=True)
class _UnitStage:
    """A residual unit, what reads its output, and all of it in one kernel where that can be had."""

    unit: ResidualUnitWeights
    ahead: LayerInput
    fused: UnitKernel | None


class GpuDecoder:
    """Decodes the next frames of any streams of its slab. Nothing in it waits for the device; not thread-safe.

    `slots`: streams it holds; one more row, the last of the slab, is for rows of a batch that are nobody's.
    """

    def __init__(
        self,
        decoder: CodecDecoder,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
        make_unit: MakeUnit | None = None,
    ) -> None:
        """`decoder`: loaded on the CPU in float32; its weights are copied."""
        self._config, self.dtype, self.device = decoder.config, dtype, device
        self.codebooks, self.codebook_size = decoder.codebooks, decoder.codebook_size
        self.frame_samples, self.slots = decoder.frame_samples, slots
        self._slab = torch.zeros(slots + 1, decoder.history_width, dtype=dtype, device=device)
        self._frames = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self._table = decoder.table.to(device, dtype)
        self._offsets = decoder.table_offsets.to(device)
        self._input = ConvWeights.of(decoder.input, dtype, device)
        self._layers = [CodecLayerWeights.of(layer, dtype, device) for layer in decoder.layers]
        self._stages = [
            (ConvWeights.of(up.conv, dtype, device, up.stride), ConvNextWeights.of(refine, dtype, device))
            for up, refine in decoder.upsampling
        ]
        self._widening = ConvWeights.of(decoder.widening, dtype, device)
        self._blocks = [VocoderBlockWeights.of(block, dtype, device) for block in decoder.blocks]
        self._output = LayerInput.of_output(decoder.output, decoder.snake, device)
        self._units = self._in_order(make_unit or (lambda _unit, _ahead: None))
        self._taps = decoder.output.taps.t().contiguous().to(device, torch.float32)
        self._bias = decoder.output.bias.to(device, torch.float32)
        self._workspaces: dict[tuple[int, int], Workspace] = {}
        self._window_workspaces: dict[tuple[int, int], Workspace] = {}
        """Of the transformer alone, by rows and frames of `decode_windows`."""

    @torch.inference_mode()
    def decode(self, codes: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
        """The next n frames of B streams: float32 [B, n * 1920] in [-1, 1].

        `codes`: int64 [B, n, 16], each in its codebook; `slots`: int64 [B], distinct but for the row that is nobody's;
        `fresh`: int64 [B], 1 where a stream begins with these frames. All on the device.
        """
        frames = torch.where(fresh > 0, 0, self._frames[slots])
        batch = DecodeBatch(slots, fresh, frames)
        workspace = self._workspace_for(batch.rows, codes.shape[1]).open(self._slab, batch)
        x = self._hidden(codes, batch, workspace)
        pcm = self._vocode(self._upsample(x, batch, workspace), batch, workspace)
        workspace.keep()
        self._frames[slots] = frames + codes.shape[1]
        return pcm

    @torch.inference_mode()
    def decode_windows(self, codes: Tensor, context: Tensor, frames: int) -> Tensor:
        """Decodes B windows from zero state; see `streaming.WindowDecoder.decode_windows`. No stream's state changes.

        The vocoder depends on fewer frames than the transformer and costs far more, so it decodes only those.
        """
        rows, steps, _ = codes.shape
        padding = torch.full((rows,), self.slots, device=self.device)
        batch = DecodeBatch(padding, torch.ones_like(padding), torch.zeros_like(padding))
        if (rows, steps) not in self._window_workspaces:
            layers = [(self._input.input, 1)]
            self._window_workspaces[rows, steps] = Workspace(layers, rows, steps, self.device)
        hidden = self._hidden(codes, batch, self._window_workspaces[rows, steps].open(self._slab, batch))
        reach = self._config.vocoder_left_context
        kept = context.clamp(max=reach)
        steps = min(reach + frames, steps)
        hidden = select_steps(hidden.transpose(0, 1), context - kept, steps).transpose(0, 1).contiguous()
        workspace = self._workspace_for(rows, steps).open(self._slab, batch)
        pcm = self._vocode(self._upsample(hidden, batch, workspace), batch, workspace)
        size = self.frame_samples
        return select_steps(pcm.unsqueeze(2), kept * size, frames * size).squeeze(2)

    def _workspace_for(self, rows: int, frames: int) -> Workspace:
        """Made when such a batch comes for the first time: not while a graph is captured."""
        if (rows, frames) not in self._workspaces:
            self._workspaces[rows, frames] = Workspace(self._looking_back(), rows, frames, self.device)
        return self._workspaces[rows, frames]

    def _looking_back(self) -> list[tuple[LayerInput, int]]:
        """Layers that read what came before, and their steps a frame."""
        layers, steps = [(self._input.input, 1)], 1
        for conv, refine in self._stages:
            steps *= conv.stride
            layers.append((refine.input, steps))
        layers += [(self._widening.input, steps), (self._blocks[0].conv.input, steps)]
        for block, units in zip(self._blocks, self._units, strict=True):
            steps *= block.conv.stride
            layers += [(block.units[0].conv.input, steps), *((step.ahead, steps) for step in units)]
        return layers

    def _hidden(self, codes: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """[B, n, 16] -> [n, B, hidden], behind the transformer."""
        rows, steps, _ = codes.shape
        buffer = workspace.of(self._input.input)
        entries = embedding(codes.transpose(0, 1) + self._offsets, self._table)
        buffer[self._input.input.reach :] = entries.sum(2, dtype=torch.float32)
        x = self._new(steps, rows, self._input.channels)
        self._convolve(self._input, buffer, batch, residual=x)
        turn = torch.view_as_real(rope_rotations(self._config, steps, batch.frames)).float()
        branch = None
        for layer in self._layers:
            branch = self._layer(layer, x, branch, turn, batch)
        return self._normed(x, branch)

    def _layer(
        self, layer: CodecLayerWeights, x: Tensor, branch: Tensor | None, turn: Tensor, batch: DecodeBatch
    ) -> Tensor:
        """`branch` is still to be added to `x`, as is what it returns."""
        steps, rows, _ = x.shape
        heads, dim = layer.heads
        qkv = linear(self._normed(x, branch), layer.qkv)
        mixed = self._new(steps, rows, heads * dim, self.dtype)
        attend_window[(rows, heads)](
            qkv, turn, self._slab, batch.slots, batch.frames, mixed, layer.history.offset, self._slab.shape[1],
            layer.history.reach, rows, dim**-0.5, STEPS=steps, HEADS=heads, DIM=dim,
            QUERIES=max(16, triton.next_power_of_2(steps)), SPAN=max(16, triton.next_power_of_2(dim)),
            PAST=max(16, triton.next_power_of_2(layer.history.reach)),
        )  # fmt: skip  # one argument list
        both = linear(self._normed(x, linear(mixed, layer.output)), layer.gate_up)
        inner = both.shape[2] // 2
        let_through = self._new(steps, rows, inner, self.dtype)
        swiglu[(steps * rows,)](both, let_through, WIDTH=inner, SPAN=triton.next_power_of_2(inner))
        return linear(let_through, layer.down)

    def _normed(self, x: Tensor, branch: Tensor | None) -> Tensor:
        """`x` [n, B, width], after `branch` was added to it, normed and in the precision of products."""
        steps, rows, width = x.shape
        out = self._new(steps, rows, width, self.dtype)
        add_rmsnorm[(steps * rows,)](
            x, branch, out, self._config.rms_norm_eps, WIDTH=width, SPAN=triton.next_power_of_2(width),
            ADD=branch is not None,
        )  # fmt: skip  # one argument list
        return out

    def _upsample(self, source: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """The gentle stages: [n, B, hidden] -> the widening convolution's input, history included."""
        for conv, refine in self._stages:
            steps = source.shape[0] * conv.stride
            buffer = workspace.of(refine.input)
            x = self._new(steps, batch.rows, conv.channels)
            self._convolve(conv, source, batch, residual=x, onward=(buffer, refine.input))
            mixed = self._new(steps, batch.rows, conv.channels, self.dtype)
            depthwise_conv_norm[(steps * batch.rows,)](
                buffer, refine.taps, refine.bias, mixed, batch.rows, ConvNext.EPS,
                CHANNELS=conv.channels, TAPS=refine.input.reach + 1, SPAN=triton.next_power_of_2(conv.channels),
            )  # fmt: skip  # one argument list
            x = x + linear(gelu(linear(mixed, *refine.widen)), *refine.narrow)
            source = x.to(self.dtype)
        buffer = workspace.of(self._widening.input)
        buffer[self._widening.input.reach :] = source
        return buffer

    def _vocode(self, buffer: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """The widening convolution's input -> [B, samples]. Each convolution writes the next one's input."""
        steps = len(buffer) - self._widening.input.reach
        ahead = self._blocks[0].conv.input
        source = workspace.of(ahead)
        self._convolve(self._widening, buffer, batch, onward=(source, ahead))
        for number, block in enumerate(self._blocks):
            steps *= block.conv.stride
            x = self._new(steps, batch.rows, block.conv.channels, self.dtype)
            ahead = block.units[0].conv.input
            onward = workspace.of(ahead)
            self._convolve(block.conv, source, batch, residual=x, onward=(onward, ahead))
            for step in self._units[number]:
                onward = self._unit(step, onward, x, batch, workspace)
            source = onward
        pcm = torch.empty(batch.rows, steps, dtype=torch.float32, device=self.device)
        output_conv[(triton.cdiv(steps, 64), batch.rows)](
            source, self._taps, self._bias, pcm, steps, batch.rows, INPUTS=self._output.channels,
            TAPS=self._output.reach + 1, SPAN=triton.next_power_of_2(self._output.channels), STEPS=64,
        )  # fmt: skip  # one argument list
        return pcm

    def _in_order(self, make_unit: MakeUnit) -> list[list[_UnitStage]]:
        """The residual units of each block."""
        behind = [block.conv.input for block in self._blocks[1:]] + [self._output]
        return [
            [
                _UnitStage(unit, ahead, make_unit(unit, ahead))
                for unit, ahead in zip(block.units, [*(unit.conv.input for unit in block.units[1:]), end], strict=True)
            ]
            for block, end in zip(self._blocks, behind, strict=True)
        ]

    def _unit(
        self, step: _UnitStage, source: Tensor, x: Tensor, batch: DecodeBatch, workspace: PassWorkspace
    ) -> Tensor:
        """`source` through a residual unit, which adds to `x`; returns what the next layer reads."""
        steps, unit = len(x), step.unit
        onward = workspace.of(step.ahead)
        if step.fused is not None and step.fused.supports(steps, batch.rows):
            step.fused(source, x, onward)
            return onward
        branch = self._new(steps, batch.rows, unit.pointwise.input.channels, self.dtype)
        self._convolve(unit.conv, source, batch, onward=(branch, unit.pointwise.input))
        self._convolve(unit.pointwise, branch, batch, residual=x, add=True, onward=(onward, step.ahead))
        return onward

    def _new(self, steps: int, rows: int, channels: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(steps, rows, channels, dtype=dtype, device=self.device)

    def _convolve(
        self,
        conv: ConvWeights,
        source: Tensor,
        batch: DecodeBatch,
        *,
        residual: Tensor | None = None,
        add: bool = False,
        onward: tuple[Tensor, LayerInput] | None = None,
    ) -> None:
        """`source` [reach + steps, rows, inputs] through `conv`, to where `gpu_kernels.convolve` says."""
        lines = (len(source) - conv.input.reach) * batch.rows
        buffer, ahead = (None, None) if onward is None else onward
        wave = (None, None) if ahead is None or ahead.snake is None else ahead.snake
        width = conv.stride * conv.channels
        tile = conv_tile(conv, width, lines)
        convolve[(triton.cdiv(width, tile.columns), triton.cdiv(lines, tile.lines))](
            source, conv.weight, conv.bias, residual, buffer, *wave, lines, batch.rows, conv.dilation,
            0 if ahead is None else ahead.reach,
            INPUTS=conv.input.channels, TAPS=conv.taps, CHANNELS=conv.channels, STRIDE=conv.stride, ADD=add,
            KEEP=residual is not None, ONWARD=buffer is not None, WAVE=wave[0] is not None, FAST=source.is_cuda,
            LINES=tile.lines, COLUMNS=tile.columns, SPAN=tile.span, num_warps=4, num_stages=tile.stages,
        )  # fmt: skip  # one argument list
