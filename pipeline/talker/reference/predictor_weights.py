"""The code predictor's weights, with norms and projections multiplied in (`docs/qwen3_tts.md`, sections 5.1, 5.2 and
7).

The predictor's passes are short, so an operation costs more to start than to compute: folding removes operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint.checkpoint import TransformerSize

PREFIX = "talker.code_predictor."
"""Of the published tensor names."""


@dataclass(frozen=True, slots=True)
class FoldedLayer:
    """One layer. Matrices are [in, out]; `qkv` and `gate_up` include the weights of the norm that precedes them.

    `rope_cos`, `rope_sin`: [groups, heads + kv_heads, head_dim], rotary factors by position times the weights of the
    q/k norms; the part of the queries also includes the attention scale.
    """

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    rope_cos: Tensor
    rope_sin: Tensor

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], name: str, size: TransformerSize, groups: int) -> FoldedLayer:
        attention = weights[name + "input_layernorm.weight"]
        mlp = weights[name + "post_attention_layernorm.weight"]
        qkv = torch.cat([weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        gate_up = torch.cat([weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        q_norm = weights[name + "self_attn.q_norm.weight"] * size.head_dim**-0.5
        k_norm = weights[name + "self_attn.k_norm.weight"]
        norms = torch.cat([q_norm.expand(size.heads, -1), k_norm.expand(size.kv_heads, -1)])
        cos, sin = rotary(torch.arange(groups, device=norms.device), size)
        half = size.head_dim // 2
        # rotate_half(x) * sin == swap(x) * (-sin, sin); a swapped channel keeps its own norm weight.
        swapped = norms.roll(half, -1)
        sign = torch.cat([-sin[:, :half], sin[:, half:]], -1)
        return cls(
            qkv=(qkv * attention).t().contiguous(),
            out=weights[name + "self_attn.o_proj.weight"].t().contiguous(),
            gate_up=(gate_up * mlp).t().contiguous(),
            down=weights[name + "mlp.down_proj.weight"].t().contiguous(),
            rope_cos=(cos[:, None] * norms).to(norms.dtype),
            rope_sin=(sign[:, None] * swapped).to(norms.dtype),
        )


@dataclass(frozen=True, slots=True)
class FoldedPredictor:
    """All weights of the code predictor.

    `inputs`: projected embedding table of each group, [ids, hidden]; `heads`: [hidden, codebook] by group, including
    the weights of the final norm; `projection`, `bias`: from the talker's width to the predictor's, [hidden, talker
    hidden] and [hidden], None where the widths are equal.
    """

    projection: Tensor | None
    bias: Tensor | None
    inputs: list[Tensor]
    layers: list[FoldedLayer]
    heads: list[Tensor]

    @classmethod
    def of(
        cls, weights: Mapping[str, Tensor], first_embedding: Tensor, size: TransformerSize, groups: int
    ) -> FoldedPredictor:
        """`weights`: tensors by their published names; `first_embedding`: [codec_vocab, talker hidden]."""
        projection = weights.get(f"{PREFIX}small_to_mtp_projection.weight")
        bias = weights.get(f"{PREFIX}small_to_mtp_projection.bias")
        tables = [first_embedding] + [weights[f"{PREFIX}model.codec_embedding.{g}.weight"] for g in range(groups - 2)]
        norm = weights[f"{PREFIX}model.norm.weight"]
        return cls(
            projection=projection,
            bias=bias,
            inputs=[project(table, projection, bias) for table in tables],
            layers=[FoldedLayer.of(weights, f"{PREFIX}model.layers.{i}.", size, groups) for i in range(size.layers)],
            heads=[(weights[f"{PREFIX}lm_head.{g}.weight"] * norm).t().contiguous() for g in range(groups - 1)],
        )


def project(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`x` [n, talker hidden] in the predictor's width, [n, hidden]; `x` itself where there is no projection."""
    return x if weight is None else F.linear(x, weight, bias)


def rotary(positions: Tensor, size: TransformerSize) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the half-split rotary embedding (`docs/qwen3_tts.md`, section 5.2), float32 [n, head_dim]
    each."""
    exponent = torch.arange(0, size.head_dim, 2, device=positions.device, dtype=torch.float32) / size.head_dim
    angles = positions[:, None].float() * size.rope_theta**-exponent
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()
