"""The codec decoder on a GPU: the weights of `..decoder` and the state of many streams, in half precision.

Products have half-precision operands and float32 accumulators; norms and sines are computed in float32. Between two
layers of the vocoder, activations are stored in half precision. The history of a stream stays on the device, as a row
of a slab. `voxgate.pipeline.codec.gpu_worker` chooses float32 where half precision would be audible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import triton
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear
from triton.tools.tensor_descriptor import TensorDescriptor

from ..config import KEPT_STATES
from ..decoder import CodecDecoder
from ..layers import ConvNext
from ..stream_state import select_steps
from ..transformer import rope_rotations
from .kernels import add_rmsnorm, attend_window, convolve, convolve_by_tma, depthwise_conv_norm, output_conv, swiglu
from .layers import (
    CodecLayerWeights,
    ConvNextWeights,
    ConvWeights,
    DecodeBatch,
    LayerInput,
    ResidualUnitWeights,
    VocoderBlockWeights,
)
from .tiles import ANY_CHIP, ChipLimits, conv_tile
from .workspace import PassWorkspace, Workspace

OUTPUT_STEPS, OUTPUT_SPAN = 128, 128
"""Steps that a program of the last convolution reads, and the most channels of them at a time: 73 KB in float32."""


class UnitKernel(Protocol):
    """A residual unit and the snake behind it in one kernel."""

    def supports(self, steps: int, rows: int) -> bool:
        """Whether it can be used for `steps` output steps of `rows` streams."""

    def __call__(self, source: Tensor, residual: Tensor, output: Tensor) -> None:
        """Add the unit's result to `residual`, and write the next layer's input to `output` behind its history.

        `source`: the unit's input with its history.
        """


UnitFactory = Callable[[ResidualUnitWeights, LayerInput], UnitKernel | None]
"""Makes the kernel of a unit, given the input of the layer that reads its output; None where there is none."""


@dataclass(frozen=True, slots=True)
class _UnitStage:
    """A residual unit, the input of the layer that reads its output, and its fused kernel where there is one."""

    unit: ResidualUnitWeights
    next_input: LayerInput
    fused: UnitKernel | None


class GpuDecoder:
    """Decodes the next frames of any of its streams. Nothing waits for the device. Not thread-safe.

    `slots`: number of streams; slot `slots`, one more row of the slab, is for batch rows that belong to no stream.
    """

    def __init__(
        self,
        decoder: CodecDecoder,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
        make_unit: UnitFactory | None = None,
        chip: ChipLimits = ANY_CHIP,
        *,
        tma: bool = True,
    ) -> None:
        """`decoder`: in float32 on the CPU; its weights are copied. `make_unit`: fused kernels of residual units.

        `chip`: what the tiles must fit in. `tma`: whether its tensor memory accelerator may load operands.
        """
        self.tma = tma
        self._config, self.dtype, self.device, self._chip = decoder.config, dtype, device, chip
        self.fast_sine = device.type != "cpu"
        """Whether snakes take the hardware's sine, which Triton's interpreter lacks."""
        self.codebooks, self.codebook_size = decoder.codebooks, decoder.codebook_size
        self.context_frames = decoder.config.exact_left_context
        self.frame_samples, self.slots = decoder.frame_samples, slots
        self._slab = torch.zeros(slots + 1, decoder.history_width, dtype=dtype, device=device)
        self._frames = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self._kept = torch.zeros(KEPT_STATES, decoder.history_width, dtype=dtype, device=device)
        self._kept_frames = torch.zeros(KEPT_STATES, dtype=torch.int64, device=device)
        self._table = decoder.table.to(device, dtype)
        self._offsets = decoder.table_offsets.to(device)
        self._input = ConvWeights.of(decoder.input, dtype, device)
        self._layers = [CodecLayerWeights.of(layer, dtype, device) for layer in decoder.layers]
        self._stages = [
            (ConvWeights.of(up, dtype, device), ConvNextWeights.of(refine, dtype, device))
            for up, refine in decoder.upsampling
        ]
        self._widening = ConvWeights.of(decoder.widening, dtype, device)
        self._blocks = [VocoderBlockWeights.of(block, dtype, device) for block in decoder.blocks]
        self._output = LayerInput.of_output(decoder.output, device)
        self._units = self._unit_stages(make_unit or (lambda _unit, _next_input: None))
        self._taps = decoder.output.taps.t().contiguous().to(device, dtype)
        self._bias = decoder.output.bias.to(device, torch.float32)
        self._workspaces: dict[tuple[int, int], Workspace] = {}
        self._window_workspaces: dict[tuple[int, int], Workspace] = {}
        """Of the transformer alone, by rows and frames of `decode_windows`."""

    @torch.inference_mode()
    def decode(self, codes: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
        """Decode the next n frames of B streams: float32 [B, n * 1920] in [-1, 1].

        `codes`: int64 [B, n, 16], within the codebooks; `slots`: int64 [B], distinct but for the padding slot; `fresh`:
        int64 [B], 1 where a stream begins with these frames. All on the device.
        """
        frames = torch.where(fresh > 0, 0, self._frames[slots])
        batch = DecodeBatch(slots, fresh, frames)
        workspace = self._workspace_for(batch.rows, codes.shape[1]).open(self._slab, batch)
        x = self._hidden(codes, batch, workspace)
        pcm = self._vocode(self._upsample(x, batch, workspace), batch, workspace)
        workspace.store()
        self._frames[slots] = frames + codes.shape[1]
        return pcm

    def keep_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.keep_state`."""
        self._kept[place].copy_(self._slab[slot])
        self._kept_frames[place].copy_(self._frames[slot])

    def restore_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.restore_state`."""
        self._slab[slot].copy_(self._kept[place])
        self._frames[slot].copy_(self._kept_frames[place])

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
        """Made at the first call with this shape, which is the warm-up of a graph and not its capture."""
        if (rows, frames) not in self._workspaces:
            self._workspaces[rows, frames] = Workspace(self._layers_with_history(), rows, frames, self.device)
        return self._workspaces[rows, frames]

    def _layers_with_history(self) -> list[tuple[LayerInput, int]]:
        """Inputs of the layers that read history, but for the transformer, and their steps a frame."""
        layers, steps = [(self._input.input, 1)], 1
        for conv, refine in self._stages:
            steps *= conv.stride
            layers.append((refine.input, steps))
        layers += [(self._widening.input, steps), (self._blocks[0].conv.input, steps)]
        for block, units in zip(self._blocks, self._units, strict=True):
            steps *= block.conv.stride
            layers += [(block.units[0].conv.input, steps), *((stage.next_input, steps) for stage in units)]
        return layers

    def _hidden(self, codes: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """Codes [B, n, 16] to the output of the transformer, [n, B, hidden]."""
        rows, steps, _ = codes.shape
        buffer = workspace.of(self._input.input)
        entries = embedding(codes.transpose(0, 1) + self._offsets, self._table)
        buffer[self._input.input.reach :] = entries.sum(2, dtype=torch.float32)
        x = self._new(steps, rows, self._input.channels)
        self._convolve(self._input, buffer, batch, residual=x)
        rope = torch.view_as_real(rope_rotations(self._config, steps, batch.frames)).float()
        branch = None
        for layer in self._layers:
            branch = self._layer(layer, x, branch, rope, batch)
        return self._normed(x, branch)

    def _layer(
        self, layer: CodecLayerWeights, x: Tensor, branch: Tensor | None, rope: Tensor, batch: DecodeBatch
    ) -> Tensor:
        """Run one layer. `branch` is the previous layer's result, to be added to `x`; returns this layer's, float32."""
        steps, rows, _ = x.shape
        heads, dim = layer.heads
        qkv = linear(self._normed(x, branch), layer.qkv)
        attended = self._new(steps, rows, heads * dim, self.dtype)
        attend_window[(rows, heads)](
            qkv, rope, self._slab, batch.slots, batch.frames, attended, layer.history.offset, self._slab.shape[1],
            layer.history.reach, rows, dim**-0.5, STEPS=steps, HEADS=heads, DIM=dim,
            QUERIES=max(16, triton.next_power_of_2(steps)), SPAN=max(16, triton.next_power_of_2(dim)),
            PAST=max(16, triton.next_power_of_2(layer.history.reach)),
        )  # fmt: skip  # one argument list
        gate_up = linear(self._normed(x, _branch(attended, layer.output)), layer.gate_up)
        width = gate_up.shape[2] // 2
        inner = self._new(steps, rows, width, self.dtype)
        swiglu[(steps * rows,)](gate_up, inner, WIDTH=width, SPAN=triton.next_power_of_2(width))
        return _branch(inner, layer.down)

    def _normed(self, x: Tensor, branch: Tensor | None) -> Tensor:
        """The norm of `x` [n, B, width] in the precision of products, after `branch` is added to `x`."""
        steps, rows, width = x.shape
        out = self._new(steps, rows, width, self.dtype)
        add_rmsnorm[(steps * rows,)](
            x, branch, out, self._config.rms_norm_eps, WIDTH=width, SPAN=triton.next_power_of_2(width),
            ADD=branch is not None,
        )  # fmt: skip  # one argument list
        return out

    def _upsample(self, source: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """ConvNeXt upsampling stages: [n, B, hidden] to the widening convolution's input with its history."""
        for conv, refine in self._stages:
            steps = source.shape[0] * conv.stride
            buffer = workspace.of(refine.input)
            x = self._new(steps, batch.rows, conv.channels)
            self._convolve(conv, source, batch, residual=x, output=(buffer, refine.input))
            filtered = self._new(steps, batch.rows, conv.channels, self.dtype)
            depthwise_conv_norm[(steps * batch.rows,)](
                buffer, refine.taps, refine.bias, filtered, batch.rows, ConvNext.EPS,
                CHANNELS=conv.channels, TAPS=refine.input.reach + 1, SPAN=triton.next_power_of_2(conv.channels),
            )  # fmt: skip  # one argument list
            x = x + linear(gelu(linear(filtered, *refine.widen)), *refine.narrow)
            source = x.to(self.dtype)
        buffer = workspace.of(self._widening.input)
        buffer[self._widening.input.reach :] = source
        return buffer

    def _vocode(self, buffer: Tensor, batch: DecodeBatch, workspace: PassWorkspace) -> Tensor:
        """The widening convolution's input to PCM [B, samples]. Each convolution writes the next one's input."""
        steps = len(buffer) - self._widening.input.reach
        next_input = self._blocks[0].conv.input
        source = workspace.of(next_input)
        self._convolve(self._widening, buffer, batch, output=(source, next_input))
        for number, block in enumerate(self._blocks):
            steps *= block.conv.stride
            x = self._new(steps, batch.rows, block.conv.channels, self.dtype)
            next_input = block.units[0].conv.input
            unit_input = workspace.of(next_input)
            self._convolve(block.conv, source, batch, residual=x, output=(unit_input, next_input))
            for stage in self._units[number]:
                unit_input = self._unit(stage, unit_input, x, batch, workspace)
            source = unit_input
        pcm = torch.empty(batch.rows, steps, dtype=torch.float32, device=self.device)
        output_conv[(triton.cdiv(steps, OUTPUT_STEPS - self._output.reach), batch.rows)](
            source, self._taps, self._bias, pcm, steps, batch.rows, INPUTS=self._output.channels,
            TAPS=self._output.reach + 1, SPAN=max(16, min(OUTPUT_SPAN, triton.next_power_of_2(self._output.channels))),
            STEPS=OUTPUT_STEPS, num_stages=1,
        )  # fmt: skip  # one argument list
        return pcm

    def _unit_stages(self, make_unit: UnitFactory) -> list[list[_UnitStage]]:
        """The residual units of each block, each with the layer that follows it."""
        following = [block.conv.input for block in self._blocks[1:]] + [self._output]
        return [
            [
                _UnitStage(unit, next_input, make_unit(unit, next_input))
                for unit, next_input in zip(
                    block.units, [*(unit.conv.input for unit in block.units[1:]), after_block], strict=True
                )
            ]
            for block, after_block in zip(self._blocks, following, strict=True)
        ]

    def _unit(
        self, stage: _UnitStage, source: Tensor, x: Tensor, batch: DecodeBatch, workspace: PassWorkspace
    ) -> Tensor:
        """Run `source` through a residual unit, which adds to `x`; returns the next layer's input with its history."""
        steps, unit = len(x), stage.unit
        output = workspace.of(stage.next_input)
        if stage.fused is not None and stage.fused.supports(steps, batch.rows):
            stage.fused(source, x, output)
            return output
        inner = self._new(steps, batch.rows, unit.pointwise.input.channels, self.dtype)
        self._convolve(unit.conv, source, batch, output=(inner, unit.pointwise.input))
        self._convolve(unit.pointwise, inner, batch, residual=x, add=True, output=(output, stage.next_input))
        return output

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
        output: tuple[Tensor, LayerInput] | None = None,
    ) -> None:
        """Run `source` [reach + steps, rows, inputs] through `conv`.

        `residual`: receives the result, or with `add` has it added. `output`: the next layer's buffer and input.
        """
        lines = (len(source) - conv.input.reach) * batch.rows
        buffer, next_input = (None, None) if output is None else output
        snake = (None, None) if next_input is None or next_input.snake is None else next_input.snake
        width = conv.stride * conv.channels
        arguments = (
            conv.bias, residual, buffer, *snake, lines, batch.rows, conv.dilation,
            0 if next_input is None else next_input.reach,
        )  # fmt: skip  # one argument list
        constants = {
            "INPUTS": conv.input.channels, "TAPS": conv.taps, "CHANNELS": conv.channels, "STRIDE": conv.stride,
            "ADD": add, "STORE": residual is not None, "OUTPUT": buffer is not None, "SNAKE": snake[0] is not None,
            "FAST": self.fast_sine,
        }  # fmt: skip  # one mapping
        choice = conv_tile(
            conv.input.channels, conv.taps, conv.stride, width, lines, self._chip, source.element_size(), tma=self.tma
        )
        tile = choice.tile
        kernel, operands = convolve, (source, conv.weight)
        if choice.by_tma:
            kernel = convolve_by_tma
            operands = (
                TensorDescriptor.from_tensor(source.view(-1, conv.input.channels), [tile.rows, tile.span]),
                TensorDescriptor.from_tensor(conv.weight, [tile.span, tile.columns]),
            )
        kernel[(triton.cdiv(width, tile.columns), triton.cdiv(lines, tile.rows))](
            *operands, *arguments, **constants, LINES=tile.rows, COLUMNS=tile.columns, SPAN=tile.span,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip  # one argument list


def _branch(x: Tensor, weight: Tensor) -> Tensor:
    """The product of `x` [n, B, inputs] and `weight` [outputs, inputs] in float32, in which it joins the residual sum.

    Trained transformers have channels whose sum exceeds all others a thousandfold, and 65504, float16's largest number.
    """
    if weight.device.type == "cpu" or weight.dtype is torch.float32:
        return linear(x.float(), weight.float())
    # Only on a GPU can a product have another precision than its operands.
    return torch.mm(x.flatten(0, 1), weight.t(), out_dtype=torch.float32).view(*x.shape[:2], -1)
