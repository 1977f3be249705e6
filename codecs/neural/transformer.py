"""The codec's transformer: causal attention over a sliding window, every row at its own stream position."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from .config import DecoderConfig
from .history import HistoryLayout, Passage


class Positions:
    """Rotary angles and the attention mask of one chunk, shared by all layers."""

    def __init__(self, config: DecoderConfig, steps: int, passage: Passage, dtype: torch.dtype) -> None:
        past = config.sliding_window - 1
        now = passage.frames + torch.arange(steps).unsqueeze(1)  # [steps, rows]
        pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        # In float64, or the angles of a long stream lose their last digits.
        angles = now.unsqueeze(2) * config.rope_theta**-pairs
        self.cos = angles.cos().to(dtype).unsqueeze(2)  # [steps, rows, 1, head_dim / 2]
        self.sin = angles.sin().to(dtype).unsqueeze(2)
        # Key j of the past + steps keys lies `age` frames before query i; young streams have fewer than `past`.
        age = past + torch.arange(steps).unsqueeze(1) - torch.arange(past + steps)
        in_window = (age >= 0) & (age <= past)
        exists = age <= now.t().unsqueeze(2)  # [rows, steps, keys]
        self.mask = (in_window & exists).unsqueeze(1)

    def rotate(self, x: Tensor) -> Tensor:
        """Turn `x` [steps, rows, heads, head_dim], channel i paired with i + head_dim / 2."""
        low, high = x.chunk(2, dim=3)
        return torch.cat((low * self.cos - high * self.sin, high * self.cos + low * self.sin), dim=3)


class WindowedLayer:
    """RMSNorm, attention, RMSNorm, SwiGLU, each with its residual; norms and layer scales are in the matrices."""

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        name: str,
        layout: HistoryLayout,
        dtype: torch.dtype,
    ) -> None:
        self.heads, self.head_dim, self.eps = config.num_attention_heads, config.head_dim, config.rms_norm_eps
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        key, value = (self._for_every_head(config, tensors[f"{attention}.{x}_proj.weight"]) for x in "kv")
        qkv = torch.cat((tensors[f"{attention}.q_proj.weight"], key, value))
        gate_up = torch.cat((tensors[f"{mlp}.gate_proj.weight"], tensors[f"{mlp}.up_proj.weight"]))
        scale = tensors[f"{name}.self_attn_layer_scale.scale"].unsqueeze(1)
        mlp_scale = tensors[f"{name}.mlp_layer_scale.scale"].unsqueeze(1)
        self.qkv = (qkv * tensors[f"{name}.input_layernorm.weight"]).to(dtype)
        self.output = (scale * tensors[f"{attention}.o_proj.weight"]).to(dtype)
        self.gate_up = (gate_up * tensors[f"{name}.post_attention_layernorm.weight"]).to(dtype)
        self.down = (mlp_scale * tensors[f"{mlp}.down_proj.weight"]).to(dtype)
        self.past = config.sliding_window - 1
        self.tail = layout.reserve(self.past, 2 * self.heads * self.head_dim)

    @staticmethod
    def _for_every_head(config: DecoderConfig, weight: Tensor) -> Tensor:
        """Repeat shared key or value heads, so that attention need not know of the sharing."""
        heads = weight.view(config.num_key_value_heads, config.head_dim, -1)
        return heads.repeat_interleave(config.num_attention_heads // config.num_key_value_heads, 0).flatten(
            0, 1
        )

    def __call__(self, x: Tensor, positions: Positions, passage: Passage) -> Tensor:
        """[steps, rows, hidden] -> the same shape."""
        x = x + linear(self._attend(x, positions, passage), self.output)
        gate, up = linear(rms_norm(x, x.shape[2:], eps=self.eps), self.gate_up).chunk(2, dim=2)
        return x + linear(silu(gate).mul_(up), self.down)

    def _attend(self, x: Tensor, positions: Positions, passage: Passage) -> Tensor:
        steps, rows, _ = x.shape
        qkv = linear(rms_norm(x, x.shape[2:], eps=self.eps), self.qkv)
        qkv = qkv.view(steps, rows, 3, self.heads, self.head_dim)
        window = x.new_empty(self.past + steps, rows, 2, self.heads, self.head_dim)
        self.tail.recall(passage, window[: self.past].flatten(2))
        turned = positions.rotate(qkv[:, :, :2].flatten(2, 3))
        window[self.past :, :, 0] = turned[:, :, self.heads :]
        window[self.past :, :, 1] = qkv[:, :, 2]
        self.tail.keep(passage, window.flatten(2))
        query = turned[:, :, : self.heads].permute(1, 2, 0, 3)
        key, value = window.permute(2, 1, 3, 0, 4)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=positions.mask)
        return mixed.permute(2, 0, 1, 3).flatten(2)
