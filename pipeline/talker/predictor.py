"""The code predictor: from the talker's hidden state and codebook 0 to the other codes of a frame (section B.6).

A frame takes one pass per remaining code through a small transformer whose positions restart at 0, so rotary angles
are constants and its cache is a scratch buffer. The passes are short and many: what can be folded into weights is
folded when they load, because on a CPU each operation left costs more to start than to compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import TransformerSize
from .kernels import add_rms_norm, rms_norm, swiglu
from .sampling import Candidates

PREFIX = "talker.code_predictor."


@dataclass(frozen=True, slots=True)
class _Layer:
    """`qkv` and `gate_up` carry the norm that precedes them; `turn` and `cross` are rotary angles times q/k norms.

    `turn`, `cross`: by the position a pass begins at, [steps, heads + kv_heads, head_dim]; q's part also carries the
    attention scale.
    """

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    turn: Mapping[int, Tensor]
    cross: Mapping[int, Tensor]


class _CacheViews(NamedTuple):
    """One layer's cache seen by one pass: where its keys and values go, and all it attends to."""

    new_keys: Tensor
    new_values: Tensor
    keys: Tensor
    values: Tensor


class CodePredictor:
    """Draws the codes 1 to groups-1 of a batch of frames. Not thread-safe: its cache is shared scratch."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None:
        """`weights`: tensors by their published names; `first_embedding`: [codec_vocab, talker hidden].

        All tensors must be on the device and of the dtype to compute in.
        """
        self._size, self._groups = size, groups
        tables = [first_embedding] + [weights[f"{PREFIX}model.codec_embedding.{g}.weight"] for g in range(groups - 2)]
        self._project = partial(_project, weights)
        self._inputs = [self._project(table) for table in tables]
        norm = weights[f"{PREFIX}model.norm.weight"]
        self._heads = [(weights[f"{PREFIX}lm_head.{g}.weight"] * norm).t().contiguous() for g in range(groups - 1)]
        self._layers = [self._fold(weights, f"{PREFIX}model.layers.{i}.") for i in range(size.layers)]
        shape = (max_rows, size.kv_heads, groups, size.head_dim)
        self._cache = [(norm.new_zeros(shape), norm.new_zeros(shape)) for _ in self._layers]
        self._view_cache: dict[tuple[int, int], list[_CacheViews]] = {}
        # Norm weights live in the matrices that follow them; the kernels ask for one all the same.
        self._ones = norm.new_ones(size.hidden)
        self._head_ones = norm.new_ones(size.head_dim)
        # In the first pass, of two positions, the earlier one does not see the later one.
        self._first_mask = (
            torch.ones(2, 2, dtype=torch.bool, device=norm.device).tril().repeat(size.heads // size.kv_heads, 1)
        )

    def _fold(self, weights: Mapping[str, Tensor], name: str) -> _Layer:
        size = self._size
        attention = weights[name + "input_layernorm.weight"]
        mlp = weights[name + "post_attention_layernorm.weight"]
        qkv = torch.cat([weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        gate_up = torch.cat([weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        q_norm = weights[name + "self_attn.q_norm.weight"] * size.head_dim**-0.5
        k_norm = weights[name + "self_attn.k_norm.weight"]
        norms = torch.cat([q_norm.expand(size.heads, -1), k_norm.expand(size.kv_heads, -1)])
        cos, sin = rotary(torch.arange(self._groups, device=norms.device), size)
        half = size.head_dim // 2
        # rotate_half(x) * sin == swap(x) * (-sin, sin); a swapped channel brings its own norm weight along.
        swapped = norms.roll(half, -1)
        sign = torch.cat([-sin[:, :half], sin[:, half:]], -1)
        return _Layer(
            qkv=(qkv * attention).t().contiguous(),
            out=weights[name + "self_attn.o_proj.weight"].t().contiguous(),
            gate_up=(gate_up * mlp).t().contiguous(),
            down=weights[name + "mlp.down_proj.weight"].t().contiguous(),
            turn=_by_pass((cos[:, None] * norms).to(norms.dtype)),
            cross=_by_pass((sign[:, None] * swapped).to(norms.dtype)),
        )

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes of the remaining groups, int64 [n, groups - 1].

        `hidden`: talker output after its final norm, [n, talker hidden]; `first`: codebook 0, int64 [n]; `noise`:
        float32 [n, groups - 1], from `Candidates.noise`.
        """
        rows = hidden.shape[0]
        codes = first.new_empty(rows, self._groups - 1)
        # The first pass takes two positions: the hidden state and codebook 0.
        x = torch.stack((self._project(hidden), self._inputs[0][first]), 1)
        for group in range(self._groups - 1):
            last = self._pass(x, group if group == 0 else group + 1)
            code = candidates.draw((last @ self._heads[group]).float(), noise[:, group : group + 1])
            codes[:, group] = code
            if group + 1 < self._groups - 1:
                x = F.embedding(code, self._inputs[group + 1])[:, None]
        return codes

    def _views(self, rows: int, position: int, end: int) -> list[_CacheViews]:
        # Slicing four times a layer and pass would cost as much as the attention itself.
        found = self._view_cache.get((rows, position))
        if found is None:
            found = [
                _CacheViews(
                    keys[:rows, :, position:end],
                    values[:rows, :, position:end],
                    keys[:rows, :, :end],
                    values[:rows, :, :end],
                )
                for keys, values in self._cache
            ]
            self._view_cache[rows, position] = found
        return found

    def _pass(self, x: Tensor, position: int) -> Tensor:
        """Run `x` [n, t, hidden] from `position` on; returns the last position after the final norm."""
        size, ones = self._size, self._ones
        rows, steps, width = x.shape
        end = position + steps
        queries = steps * size.heads // size.kv_heads
        residual = x.reshape(rows * steps, width)
        x = rms_norm(residual, ones, size.norm_eps)
        for layer, cache in zip(self._layers, self._views(rows, position, end), strict=True):
            qkv = torch.mm(x, layer.qkv).view(rows, steps, -1, size.head_dim)
            # The values are normed along, which costs less than cutting them off first, and not used.
            qk = rms_norm(qkv, self._head_ones, size.norm_eps).narrow(2, 0, size.heads + size.kv_heads)
            qk = (qk * layer.turn[position]).addcmul_(qk.roll(size.head_dim // 2, -1), layer.cross[position])
            query, key = torch.split(qk, [size.heads, size.kv_heads], 2)
            cache.new_keys.copy_(key.transpose(1, 2))
            cache.new_values.copy_(qkv.narrow(2, size.heads + size.kv_heads, size.kv_heads).transpose(1, 2))
            # Queries that share a key-value head count as so many positions of one head.
            query = query.reshape(rows, steps, size.kv_heads, -1, size.head_dim).permute(0, 2, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(
                query.reshape(rows, size.kv_heads, queries, size.head_dim),
                cache.keys,
                cache.values,
                attn_mask=self._first_mask if steps > 1 else None,
                scale=1.0,
            )
            mixed = mixed.view(rows, size.kv_heads, -1, steps, size.head_dim).permute(0, 3, 1, 2, 4)
            x = torch.mm(mixed.reshape(rows * steps, -1), layer.out)
            add_rms_norm(x, residual, ones, size.norm_eps)
            x = torch.mm(swiglu(torch.mm(x, layer.gate_up)), layer.down)
            add_rms_norm(x, residual, ones, size.norm_eps)
        return x.view(rows, steps, width)[:, -1]


def _by_pass(angles: Tensor) -> dict[int, Tensor]:
    """The first pass takes positions 0 and 1, each later one a single position."""
    return {0: angles[:2]} | {position: angles[position : position + 1] for position in range(2, len(angles))}


def rotary(positions: Tensor, size: TransformerSize) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the half-split rotary embedding (section C), float32 [n, head_dim] each."""
    exponent = torch.arange(0, size.head_dim, 2, device=positions.device, dtype=torch.float32) / size.head_dim
    angles = positions[:, None].float() * size.rope_theta**-exponent
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def _project(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """From the talker's width to the predictor's; where they are equal there is no tensor and nothing to do."""
    weight = weights.get(f"{PREFIX}small_to_mtp_projection.weight")
    return x if weight is None else F.linear(x, weight, weights[f"{PREFIX}small_to_mtp_projection.bias"])
