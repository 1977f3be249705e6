"""The code predictor: from the talker's hidden state and codebook 0 to the other codes of a frame (section B.6).

A frame takes one pass per remaining code through a small transformer whose positions restart at 0, so rotary angles
are constants and its cache is a scratch buffer. The passes are short and many, and each operation costs more to start
than to compute: what can be folded into weights is folded when they load. On a CPU even the rest is too much, which is
why `native_predictor` stands in for `CodePredictor` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoint import TransformerSize
from ..cpu.vllm_ops import add_rms_norm, rms_norm, swiglu
from .predictor_weights import FoldedPredictor, project
from .sampling import Candidates


class Predictor(Protocol):
    """What completes frames; `CodePredictor` says what goes in and out."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None: ...

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor: ...


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
        folded = FoldedPredictor.of(weights, first_embedding, size, groups)
        self._project = partial(project, weight=folded.projection, bias=folded.bias)
        self._inputs, self._heads, self._layers = folded.inputs, folded.heads, folded.layers
        # The first pass takes positions 0 and 1, each later one a single position.
        spans = {0: slice(0, 2)} | {position: slice(position, position + 1) for position in range(2, groups)}
        self._angles = {
            begin: [(layer.rope_cos[span], layer.rope_sin[span]) for layer in folded.layers]
            for begin, span in spans.items()
        }
        like = folded.heads[0]
        shape = (max_rows, size.kv_heads, groups, size.head_dim)
        self._cache = [(like.new_zeros(shape), like.new_zeros(shape)) for _ in self._layers]
        self._view_cache: dict[tuple[int, int], list[_CacheViews]] = {}
        # Norm weights live in the matrices that follow them; the kernels ask for one all the same.
        self._ones = like.new_ones(size.hidden)
        self._head_ones = like.new_ones(size.head_dim)
        # In the first pass, of two positions, the earlier one does not see the later one.
        self._first_mask = (
            torch.ones(2, 2, dtype=torch.bool, device=like.device).tril().repeat(size.heads // size.kv_heads, 1)
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
        for layer, (rope_cos, rope_sin), cache in zip(
            self._layers, self._angles[position], self._views(rows, position, end), strict=True
        ):
            qkv = torch.mm(x, layer.qkv).view(rows, steps, -1, size.head_dim)
            # The values are normed along, which costs less than cutting them off first, and not used.
            qk = rms_norm(qkv, self._head_ones, size.norm_eps).narrow(2, 0, size.heads + size.kv_heads)
            qk = (qk * rope_cos).addcmul_(qk.roll(size.head_dim // 2, -1), rope_sin)
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
