"""The talker's layers on a GPU, in fewer and smaller kernels than vLLM has for them, over vLLM's own cache.

A batch of few rows takes as long as its weights take to be read, and the gaps between kernels: `product` and
`attend_pages` make five of them a layer, each begun before the one ahead of it has ended. More rows are multiplied by
the library, with three kernels around its four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ..checkpoint import TransformerSize
from .gpu_layer_kernels import ADD, GATED, STORE, add_rows, attend_pages, end_rows, gate_rows, product, start_rows
from .row_names import CHANNELS

FEW = 0
"""Rows up to which `product` is faster than the library, as measured on an H200."""
ADDED = 16
"""Columns of the residual stream that a program adds to; what it leaves of their squares is one block."""
TOGETHER = 16
"""Rows of a prompt that are weighed at once."""
_REQUESTS = (16, 64, 256, 1024, 4096)
"""Sizes of batches that `attend_pages` is compiled for."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Matrices are [out, in]; `qkv` and `gate_up` carry the norm that precedes them. `q_norm`, `k_norm`: [head_dim]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    q_norm: Tensor
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """Whose the rows of a batch are, and where.

    `slots`: int [n]; `positions`, `places`: int64 [n], `places` where its key and value go, below zero for nobody's;
    `pages`: int32 [requests, pages], where a request's positions lie in the cache; `starts`: int32 [requests + 1],
    where its rows begin.
    """

    slots: Tensor
    positions: Tensor
    places: Tensor
    pages: Tensor
    starts: Tensor


@dataclass(frozen=True, slots=True)
class Cut:
    """How `product` cuts a product up; `near`: whether its weights are brought nearer while it waits."""

    columns: int
    span: int
    slices: int
    stages: int
    near: bool = True


def tile_for(rows: int) -> tuple[int, int]:
    """Positions of the cache that a program of `attend_pages` weighs at once, and its warps, as measured on an H200."""
    return (128, 8) if rows <= 16 else (64, 4) if rows <= 32 else (32, 2) if rows <= 64 else (32, 1)


def cut_for(end: int) -> Cut:
    return Cut(ADDED if end == ADD else 32, 64, 4, 4)


class GpuLayers:
    """All layers and the last norm for a batch of rows. Not thread-safe: it owns shared scratch.

    Nothing in it waits for the device, so a call can be captured in a CUDA graph. `angles`: cosines and sines behind
    one another by position, [positions, head_dim]; `few`: rows up to which its own products are taken; `early`: start
    each kernel while the one before it still runs.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        norm: Tensor,
        angles: Tensor,
        size: TransformerSize,
        max_rows: int,
        *,
        few: int = FEW,
        early: bool | None = None,
    ) -> None:
        self._layers, self._norm, self._angles, self._size = layers, norm, angles, size
        self._max_rows, self._few = max_rows, few
        self._early = norm.is_cuda if early is None else early
        self._blocks = triton.cdiv(size.hidden, ADDED)
        # The residual stream three times over: as it is added to, as it is multiplied, and its squares by block.
        self._kept = norm.new_empty(max_rows, size.hidden, dtype=torch.float32)
        self._x = norm.new_empty(max_rows, size.hidden)
        self._squares = norm.new_zeros(max_rows, self._blocks, dtype=torch.float32)
        self._mixed = norm.new_empty(max_rows, size.heads * size.head_dim)
        self._qkv = norm.new_empty(max_rows, (size.heads + 2 * size.kv_heads) * size.head_dim)
        self._inner = norm.new_empty(max_rows, size.intermediate)

    def __call__(self, embedded: Tensor, rows: Rows, caches: Sequence[Tensor]) -> Tensor:
        """Hidden states behind the last norm, with whose they are: [n, hidden + CHANNELS], from `embedded` [n, hidden].

        `caches`: by layer, [pages, kv_heads, places, 2 * head_dim] in any order in memory. Raises ValueError for more
        than max_rows.
        """
        count, size = len(embedded), self._size
        if count > self._max_rows:
            raise ValueError(f"{count} rows are more than the {self._max_rows} prepared for")
        x, mixed, few = self._x[:count], self._mixed[:count], count <= self._few
        self._start(embedded, norm=not few)
        for layer, cache in zip(self._layers, caches, strict=True):
            if few:
                qkv, inner = self._qkv[:count], self._inner[:count]
                self._product(x, layer.qkv, qkv, STORE, norm=True)
                self._attend(qkv, layer, cache, rows, mixed)
                self._product(mixed, layer.out, x, ADD)
                self._product(x, layer.gate_up, inner, GATED, norm=True)
                self._product(inner, layer.down, x, ADD)
            else:
                self._attend(x @ layer.qkv.t(), layer, cache, rows, mixed)
                self._add(mixed @ layer.out.t())
                self._add(self._gate(x @ layer.gate_up.t()) @ layer.down.t())
        out = embedded.new_empty(count, size.hidden + CHANNELS)
        end_rows[(count,)](
            self._kept, self._norm, rows.slots, rows.positions, out, size.hidden, size.norm_eps,
            SPAN=triton.next_power_of_2(size.hidden), NAMES=CHANNELS, EARLY=self._early, launch_pdl=self._early,
        )  # fmt: skip  # one argument list
        return out

    def _start(self, embedded: Tensor, *, norm: bool) -> None:
        hidden = self._size.hidden
        start_rows[(len(embedded),)](
            embedded, self._x, self._kept, self._squares, hidden, self._size.norm_eps,
            SPAN=triton.next_power_of_2(hidden), BLOCKS=self._blocks, SPREAD=triton.next_power_of_2(self._blocks),
            NORM=norm, EARLY=self._early, launch_pdl=self._early,
        )  # fmt: skip  # one argument list

    def _add(self, added: Tensor) -> None:
        hidden = self._size.hidden
        add_rows[(len(added),)](
            added, self._x, self._kept, hidden, self._size.norm_eps,
            SPAN=triton.next_power_of_2(hidden), EARLY=self._early, launch_pdl=self._early,
        )  # fmt: skip  # one argument list

    def _gate(self, both: Tensor) -> Tensor:
        inner = self._inner[: len(both)]
        gate_rows[(len(both), triton.cdiv(inner.shape[1], 1024))](
            both, inner, inner.shape[1], SPAN=1024, EARLY=self._early, launch_pdl=self._early
        )
        return inner

    def _product(self, x: Tensor, weight: Tensor, out: Tensor, end: int, *, norm: bool = False) -> None:
        """`x` [n, inner] through `weight` [width or twice it, inner], to `out` [n, width]."""
        height, inner = x.shape
        width, cut = out.shape[1], cut_for(end)
        lines = triton.next_power_of_2(cut.columns * inner // 64) if cut.near else 0
        rows = max(16, min(64, triton.next_power_of_2(height)))
        product[(triton.cdiv(width, cut.columns), triton.cdiv(height, rows))](
            x, weight, out, self._kept, self._squares, height, width, self._size.norm_eps,
            INNER=inner, SLICES=cut.slices, SPAN=cut.span, ROWS=rows, COLUMNS=cut.columns, STAGES=cut.stages,
            BLOCKS=self._blocks, SPREAD=triton.next_power_of_2(self._blocks), LINES=lines, NORM=norm, END=end,
            EARLY=self._early, num_warps=cut.slices, launch_pdl=self._early,
        )  # fmt: skip  # one argument list

    def _attend(self, qkv: Tensor, layer: Layer, cache: Tensor, rows: Rows, out: Tensor) -> None:
        size, requests = self._size, len(rows.starts) - 1
        tile, warps = tile_for(len(qkv))
        attend_pages[(len(qkv), size.kv_heads)](
            qkv, layer.q_norm, layer.k_norm, self._angles, cache, rows.pages, rows.starts, rows.positions, rows.places,
            out, requests, size.norm_eps, size.head_dim**-0.5,
            cache.stride(0), cache.stride(2), cache.stride(1), rows.pages.stride(0),
            SHARING=size.heads // size.kv_heads, KV=size.kv_heads, DIM=size.head_dim, PAGE=cache.shape[2],
            QUERIES=max(16, triton.next_power_of_2(size.heads // size.kv_heads)), TILE=tile, TOGETHER=TOGETHER,
            REQUESTS=next(most for most in _REQUESTS if most > requests), EARLY=self._early, num_warps=warps,
            launch_pdl=self._early,
        )  # fmt: skip  # one argument list
