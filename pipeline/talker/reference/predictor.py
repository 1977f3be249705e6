"""The code predictor in plain PyTorch: from hidden state and codebook 0 to the other codes (`docs/qwen3_tts.md`,
section 7).

The tests compare the predictors that serve, `CpuCodePredictor` and `GpuCodePredictor`, with this one. A frame takes one
pass for each remaining code through a small transformer. Its positions restart at 0, so the rotary angles are constants
and the cache is overwritten by each frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint.checkpoint import TransformerSize
from .predictor_weights import FoldedLayer, FoldedPredictor, project
from .sampling import Candidates


class Predictor(Protocol):
    """Completes frames; `CodePredictor` documents arguments and results."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None: ...

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor: ...


class CodePredictor:
    """Draws the codes 1 to groups - 1 of a batch of frames. Not thread-safe: calls share one cache."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None:
        """`weights`: tensors by their published names; `first_embedding`: [codec vocab, talker hidden].

        All tensors must be on the device and of the dtype to compute in. `max_rows`: largest batch.
        """
        self._size, self._groups = size, groups
        self._folded = FoldedPredictor.of(weights, first_embedding, size, groups)
        like = self._folded.heads[0]
        shape = (max_rows, size.kv_heads, groups, size.head_dim)
        self._cache = [(like.new_zeros(shape), like.new_zeros(shape)) for _ in self._folded.layers]
        # Of the first pass's two positions the earlier one does not attend to the later one.
        self._first_mask = (
            torch.ones(2, 2, dtype=torch.bool, device=like.device).tril().repeat(size.heads // size.kv_heads, 1)
        )

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes of the remaining groups, int64 [n, groups - 1].

        `hidden`: talker output after its final norm, [n, talker hidden]; `first`: codebook 0, int64 [n]; `noise`:
        float32 [n, groups - 1], from `Candidates.noise`.
        """
        folded = self._folded
        codes = first.new_empty(len(hidden), self._groups - 1)
        # The first pass takes two positions, the hidden state and codebook 0; each later pass takes one.
        x = torch.stack((project(hidden, folded.projection, folded.bias), folded.inputs[0][first]), 1)
        for group in range(self._groups - 1):
            last = self._pass(x, group if group == 0 else group + 1)
            code = candidates.draw((last @ folded.heads[group]).float(), noise[:, group : group + 1])
            codes[:, group] = code
            if group + 1 < self._groups - 1:
                x = F.embedding(code, folded.inputs[group + 1])[:, None]
        return codes

    def _pass(self, x: Tensor, position: int) -> Tensor:
        """Run `x` [n, steps, hidden] from `position` on; returns the final norm of the last step, [n, hidden]."""
        rows, steps, width = x.shape
        residual = x.reshape(rows * steps, width)
        for layer, (keys, values) in zip(self._folded.layers, self._cache, strict=True):
            qkv = torch.mm(self._norm(residual), layer.qkv).view(rows, steps, -1, self._size.head_dim)
            attended = self._attend(qkv, layer, keys[:rows], values[:rows], position)
            residual = residual + torch.mm(attended, layer.out)
            gate, up = torch.mm(self._norm(residual), layer.gate_up).chunk(2, -1)
            residual = residual + torch.mm(F.silu(gate) * up, layer.down)
        return self._norm(residual).view(rows, steps, width)[:, -1]

    def _attend(self, qkv: Tensor, layer: FoldedLayer, keys: Tensor, values: Tensor, position: int) -> Tensor:
        """Attention of the positions from `position` on, [n * steps, heads * head_dim], whose keys join the cache."""
        size = self._size
        rows, steps = qkv.shape[:2]
        end = position + steps
        qk, value = torch.split(qkv, [size.heads + size.kv_heads, size.kv_heads], 2)
        # The angles carry the weights of the q/k norms and the attention scale.
        qk = self._norm(qk)
        qk = qk * layer.rope_cos[position:end] + qk.roll(size.head_dim // 2, -1) * layer.rope_sin[position:end]
        query, key = torch.split(qk, [size.heads, size.kv_heads], 2)
        keys[:, :, position:end] = key.transpose(1, 2)
        values[:, :, position:end] = value.transpose(1, 2)
        # Queries that share a key-value head are treated as further positions of one head.
        query = query.reshape(rows, steps, size.kv_heads, -1, size.head_dim).permute(0, 2, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            query.reshape(rows, size.kv_heads, -1, size.head_dim),
            keys[:, :, :end],
            values[:, :, :end],
            attn_mask=self._first_mask if steps > 1 else None,
            scale=1.0,
        )
        attended = attended.view(rows, size.kv_heads, -1, steps, size.head_dim).permute(0, 3, 1, 2, 4)
        return attended.reshape(rows * steps, -1)

    def _norm(self, x: Tensor) -> Tensor:
        """RMS norm over the last dimension, without weights: those are folded into the matrices."""
        return F.rms_norm(x, (x.shape[-1],), None, self._size.norm_eps)
