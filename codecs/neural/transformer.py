"""The codec decoder's transformer: causal attention over a sliding window, each row at its own stream position."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from .config import DecoderConfig
from .stream_state import ChunkHistory, HistoryLayout


class ChunkPositions:
    """Rotary angles and the attention mask of one chunk, shared by all layers."""

    def __init__(self, config: DecoderConfig, steps: int, frames: Tensor, dtype: torch.dtype) -> None:
        """`frames`: int64 [rows], position in its stream of each row's first frame."""
        ages, in_window, offsets, _ = _chunk_constants(config, steps, frames.device)
        now = frames + offsets  # [steps, rows]
        rotations = rope_rotations(config, steps, frames).unsqueeze(2)
        self.rotations = rotations.to(torch.complex128 if dtype is torch.float64 else torch.complex64)
        # A new stream has fewer than `past` frames before the chunk.
        allowed = in_window & (ages <= now.t().unsqueeze(2))  # [rows, steps, keys]
        self.mask = torch.where(allowed, 0.0, -torch.inf).to(dtype).unsqueeze(1)

    def rotate(self, x: Tensor) -> Tensor:
        """Applies the rotary embedding to `x` [steps, rows, heads, head_dim], with adjacent channels as pairs."""
        return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:3], -1, 2)) * self.rotations).flatten(3)


def rope_rotations(config: DecoderConfig, steps: int, frames: Tensor) -> Tensor:
    """Returns the rotation of each pair of a head's channels: complex128 [steps, rows, head_dim / 2]."""
    _, _, offsets, frequencies = _chunk_constants(config, steps, frames.device)
    # float64, because the angles of a long stream would lose their last digits in float32.
    angles = (frames + offsets).unsqueeze(2) * frequencies
    return torch.polar(torch.ones_like(angles), angles)


@lru_cache(maxsize=32)
def _chunk_constants(config: DecoderConfig, steps: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns each key's age at each query, whether it is in the window, the steps' offsets, and frequencies."""
    past = config.sliding_window - 1
    offsets = torch.arange(steps, device=device).unsqueeze(1)
    ages = past + offsets - torch.arange(past + steps, device=device)
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=device) / config.head_dim
    return ages, (ages >= 0) & (ages <= past), offsets, config.rope_theta**-pairs


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """Applies RMSNorm without weight; torch's own is several times slower on few rows."""
    return x * x.square().mean(2, keepdim=True).add_(eps).rsqrt_()


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
        self.qkv = (qkv * tensors["input_layernorm.weight"]).to(dtype)
        self.output = (attention_scale * tensors["self_attn.o_proj.weight"]).to(dtype)
        self.gate_up = (gate_up * tensors["post_attention_layernorm.weight"]).to(dtype)
        self.down = (mlp_scale * tensors["mlp.down_proj.weight"]).to(dtype)
        self.past = config.sliding_window - 1
        self.tail = layout.reserve(self.past, 2 * self.heads * self.head_dim)

    @staticmethod
    def _repeat_heads(config: DecoderConfig, weight: Tensor) -> Tensor:
        """Repeats shared key or value heads, so that every query head has its own."""
        heads = weight.view(config.num_key_value_heads, config.head_dim, -1)
        sharing = config.num_attention_heads // config.num_key_value_heads
        return heads.repeat_interleave(sharing, dim=0).flatten(0, 1)

    def __call__(self, x: Tensor, positions: ChunkPositions, history: ChunkHistory) -> Tensor:
        """Maps [steps, rows, hidden] to the same shape."""
        x = x + linear(self._attend(x, positions, history), self.output)
        gate, up = linear(rms_norm(x, self.eps), self.gate_up).chunk(2, dim=2)
        return x + linear(silu(gate).mul_(up), self.down)

    def _attend(self, x: Tensor, positions: ChunkPositions, history: ChunkHistory) -> Tensor:
        steps, rows, _ = x.shape
        qkv = linear(rms_norm(x, self.eps), self.qkv)
        qkv = qkv.view(steps, rows, 3, self.heads, self.head_dim)
        window = x.new_empty(self.past + steps, rows, 2, self.heads, self.head_dim)
        self.tail.load(history, window[: self.past].flatten(2))
        rotated = positions.rotate(qkv[:, :, :2].flatten(2, 3))
        window[self.past :, :, 0] = rotated[:, :, self.heads :]
        window[self.past :, :, 1] = qkv[:, :, 2]
        self.tail.store(history, window.flatten(2))
        query = rotated[:, :, : self.heads].permute(1, 2, 0, 3)
        key, value = window.permute(2, 1, 3, 0, 4)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=positions.mask)
        return attended.permute(2, 0, 1, 3).flatten(2)
