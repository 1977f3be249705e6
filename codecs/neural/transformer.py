"""The codec decoder's transformer: causal attention over a sliding window, each row at its own stream position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .config import DecoderConfig
from .cpu.panels import Array, PanelMatrix
from .stream_state import ChunkHistory, HistoryLayout


@dataclass(frozen=True, slots=True)
class RotaryAngles:
    """Cosines and sines of the rotary angles of a chunk, [lines, head_dim / 2], shared by all layers."""

    cosines: Array
    sines: Array

    @classmethod
    def of(cls, config: DecoderConfig, steps: int, frames: Tensor, dtype: torch.dtype) -> RotaryAngles:
        """`frames`: int64 [rows], position in its stream of each row's first frame."""
        rotations = rope_rotations(config, steps, frames).flatten(0, 1)
        return cls(*(part.to(dtype).contiguous().numpy() for part in (rotations.real, rotations.imag)))


def rope_rotations(config: DecoderConfig, steps: int, frames: Tensor) -> Tensor:
    """Returns the rotation of each pair of a head's channels: complex128 [steps, rows, head_dim / 2]."""
    offsets, frequencies = _chunk_constants(config, steps, frames.device)
    # float64, because the angles of a long stream would lose their last digits in float32.
    angles = (frames + offsets).unsqueeze(2) * frequencies
    return torch.polar(torch.ones_like(angles), angles)


@lru_cache(maxsize=32)
def _chunk_constants(config: DecoderConfig, steps: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the steps' offsets and the rotary frequencies."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=device) / config.head_dim
    return torch.arange(steps, device=device).unsqueeze(1), config.rope_theta**-pairs


def interleave_rope_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Reorders query or key outputs so that the rotary pairs (i, i + head_dim / 2) are adjacent.

    Scores do not change, because queries and keys are reordered alike, and a rotation is one complex product.
    """
    return weight.view(-1, 2, head_dim // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


class WindowedLayer:
    """RMSNorm, attention, RMSNorm, SwiGLU, with residuals; norm weights and layer scales are folded into the others."""

    def __init__(
        self, config: DecoderConfig, tensors: Mapping[str, Tensor], layout: HistoryLayout, dtype: torch.dtype
    ) -> None:
        """`tensors`: those of this layer, by their names within it."""
        self.heads, self.head_dim, self.eps = config.num_attention_heads, config.head_dim, config.rms_norm_eps
        query, key, value = (tensors[f"self_attn.{x}_proj.weight"] for x in "qkv")
        query, key = (interleave_rope_pairs(weight, config.head_dim) for weight in (query, key))
        qkv = torch.cat((query, self._repeat_heads(config, key), self._repeat_heads(config, value)))
        gate_up = torch.cat([tensors[f"mlp.{x}_proj.weight"] for x in ("gate", "up")])
        attention_scale = tensors["self_attn_layer_scale.scale"].unsqueeze(1)
        mlp_scale = tensors["mlp_layer_scale.scale"].unsqueeze(1)
        self.qkv = _transposed(qkv * tensors["input_layernorm.weight"], dtype)
        self.output = _transposed(attention_scale * tensors["self_attn.o_proj.weight"], dtype)
        self.gate_up = _transposed(gate_up * tensors["post_attention_layernorm.weight"], dtype)
        self.down = _transposed(mlp_scale * tensors["mlp.down_proj.weight"], dtype)
        self.tail = layout.reserve(config.sliding_window - 1, 2 * self.heads * self.head_dim)

    @staticmethod
    def _repeat_heads(config: DecoderConfig, weight: Tensor) -> Tensor:
        """Repeats shared key or value heads, so that every query head has its own."""
        heads = weight.view(config.num_key_value_heads, config.head_dim, -1)
        sharing = config.num_attention_heads // config.num_key_value_heads
        return heads.repeat_interleave(sharing, dim=0).flatten(0, 1)

    def __call__(self, x: Array, angles: RotaryAngles, history: ChunkHistory) -> None:
        """Runs the layer on `x` [lines, hidden], in place."""
        from .cpu.transformer import windowed_layer

        windowed_layer(
            x, history.history, history.slots, history.frames, self.tail.offset, self.tail.steps, self.heads,
            angles.cosines, angles.sines, self.eps, self.qkv.panels, self.output.panels, self.gate_up.panels,
            self.down.panels,
        )  # fmt: skip  # one argument list


def _transposed(weight: Tensor, dtype: torch.dtype) -> PanelMatrix:
    return PanelMatrix.of(weight.t().to(dtype))
