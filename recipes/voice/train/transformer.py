"""Transformer layers of the talker, the code predictor and the codec, with the published tensor names.

Implemented apart from the gateway's layers, because training needs gradients, and runs without this project installed.
`docs/qwen3_tts.md`, sections 5.1 and 5.2, describes the layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sizes import LayerStackSize


class RmsNorm(nn.Module):
    """Root-mean-square normalisation, computed in single precision."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps).to(x.dtype)


def rotary_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float [..., 1, T, head_dim], of positions int [..., T]; they broadcast over heads."""
    rates = theta ** (-torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    angles = positions[..., None].float() * rates
    angles = torch.cat([angles, angles], -1).unsqueeze(-3)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Apply the half-split rotary embedding."""
    half = x.shape[-1] // 2
    return x * cosines + torch.cat([-x[..., half:], x[..., :half]], -1) * sines


class CausalSelfAttention(nn.Module):
    """Grouped-query attention with optional normalisation of queries and keys."""

    def __init__(self, size: LayerStackSize) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = size.heads, size.kv_heads, size.head_dim
        self.q_proj = nn.Linear(size.hidden, size.heads * size.head_dim, bias=False)
        self.k_proj = nn.Linear(size.hidden, size.kv_heads * size.head_dim, bias=False)
        self.v_proj = nn.Linear(size.hidden, size.kv_heads * size.head_dim, bias=False)
        self.o_proj = nn.Linear(size.heads * size.head_dim, size.hidden, bias=False)
        if size.qk_norm:
            self.q_norm, self.k_norm = RmsNorm(size.head_dim, size.norm_eps), RmsNorm(size.head_dim, size.norm_eps)
        self.qk_norm = size.qk_norm

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q = rotate(q.transpose(1, 2), cosines, sines).to(v.dtype)
        k = rotate(k.transpose(1, 2), cosines, sines).to(v.dtype)
        group = self.heads // self.kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class GatedMlp(nn.Module):
    """SwiGLU perceptron."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LayerScale(nn.Module):
    """A learnt factor for each channel."""

    def __init__(self, width: int, value: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), value))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class CausalTransformerLayer(nn.Module):
    """A pre-norm layer: attention and a gated perceptron, each with a residual."""

    def __init__(self, size: LayerStackSize, dropout: float) -> None:
        super().__init__()
        self.self_attn, self.mlp = CausalSelfAttention(size), GatedMlp(size.hidden, size.intermediate)
        self.input_layernorm = RmsNorm(size.hidden, size.norm_eps)
        self.post_attention_layernorm = RmsNorm(size.hidden, size.norm_eps)
        self.scaled = size.layer_scale is not None
        if size.layer_scale is not None:
            self.self_attn_layer_scale = LayerScale(size.hidden, size.layer_scale)
            self.mlp_layer_scale = LayerScale(size.hidden, size.layer_scale)
        self.dropout = dropout

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), cosines, sines, mask)
        if self.scaled:
            attended = self.self_attn_layer_scale(attended)
        x = x + F.dropout(attended, self.dropout, self.training)
        activated = self.mlp(self.post_attention_layernorm(x))
        if self.scaled:
            activated = self.mlp_layer_scale(activated)
        return x + F.dropout(activated, self.dropout, self.training)


class CausalTransformer(nn.Module):
    """A stack of layers and the final norm.

    positions: int [T] or [batch, T]. mask: added to the attention scores, [.., T, T]; None for a causal one.
    """

    def __init__(self, size: LayerStackSize, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.layers = nn.ModuleList([CausalTransformerLayer(size, dropout) for _ in range(size.layers)])
        self.norm = RmsNorm(size.hidden, size.norm_eps)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        cosines, sines = rotary_angles(positions, self.size.head_dim, self.size.rope_theta)
        for layer in self.layers:
            x = layer(x, cosines, sines, mask)
        return self.norm(x)


def additive_mask(allowed: Tensor) -> Tensor:
    """bool -> bfloat16: 0 where attention is allowed, elsewhere a large negative number."""
    return torch.zeros_like(allowed, dtype=torch.bfloat16).masked_fill(~allowed, -30_000.0)
