"""The talker's layers on a GPU, in fewer and smaller kernels than vLLM has for them, over vLLM's own cache.

The library multiplies; attention with all that goes before it, the gate, and the sums with their norms are a kernel
each. A few rows can go another way (`gpu_few_layers.py`), with products of our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from ...checkpoint import TransformerSize
from ..reference.row_tags import TAG_CHANNELS
from .backbone_kernels import BatchRows, LayerWeights, add_rmsnorm, final_norm, init_residual, paged_attention, swiglu
from .streamed_layers import TRIED_ROWS, StreamedLayers, streamed_layers_for

TOGETHER = 16
"""BatchRows of a prompt that are weighed at once."""
_REQUESTS = (16, 64, 256, 1024, 4096)
"""Sizes of batches that `paged_attention` is compiled for."""


def attention_tile(rows: int) -> tuple[int, int]:
    """Positions of the cache that a program of `paged_attention` weighs at once, and its warps.

    As measured on an H200 at 1, 12 and 128 rows; between those, by the number of programs that fit on it at once.
    """
    return (128, 8) if rows <= 16 else (64, 4) if rows <= 32 else (32, 2) if rows <= 64 else (32, 1)


class GpuBackbone:
    """All layers and the last norm for a batch of rows. Not thread-safe: it owns shared scratch.

    Nothing in it waits for the device, so a call can be captured in a CUDA graph. `angles`: cosines and sines behind
    one another by position, [positions, head_dim]; `pdl`: start each kernel while the one before it still runs.
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        norm: Tensor,
        angles: Tensor,
        size: TransformerSize,
        max_rows: int,
        *,
        pdl: bool | None = None,
        few: StreamedLayers | None = None,
    ) -> None:
        """`few`: of the same layers, takes what it has room for."""
        self._layers, self._norm, self._angles, self._size = layers, norm, angles, size
        self._max_rows, self._few = max_rows, few
        self._pdl = norm.is_cuda if pdl is None else pdl
        # The residual stream twice: as it is added to, and as it is multiplied.
        self._residual = norm.new_empty(max_rows, size.hidden, dtype=torch.float32)
        self._x = norm.new_empty(max_rows, size.hidden)
        self._mixed = norm.new_empty(max_rows, size.heads * size.head_dim)
        self._inner = norm.new_empty(max_rows, size.intermediate)
        # Of the kernels that have a row each.
        self._by_row = {
            "SPAN": triton.next_power_of_2(size.hidden),
            "PDL": self._pdl,
            "launch_pdl": self._pdl,
        }

    def __call__(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]) -> Tensor:
        """Hidden states behind the last norm, with whose they are: [n, hidden + TAG_CHANNELS], from `embedded` [n,
        hidden].

        `caches`: by layer, [pages, kv_heads, places, 2 * head_dim] in any order in memory. Raises ValueError for more
        than max_rows.
        """
        count, size = len(embedded), self._size
        if count > self._max_rows:
            raise ValueError(f"{count} rows are more than the {self._max_rows} prepared for")
        if self._few is not None and count <= self._few.max_rows:
            self._few(embedded, rows, caches, self._residual[:count])
        else:
            self._run(embedded, rows, caches)
        out = embedded.new_empty(count, size.hidden + TAG_CHANNELS)
        final_norm[(count,)](
            self._residual, self._norm, rows.slots, rows.positions, out, size.hidden, size.norm_eps,
            NAMES=TAG_CHANNELS, **self._by_row,
        )  # fmt: skip  # one argument list
        return out

    def _run(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]) -> None:
        count, size = len(embedded), self._size
        x, mixed = self._x[:count], self._mixed[:count]
        init_residual[(count,)](embedded, x, self._residual, size.hidden, size.norm_eps, **self._by_row)
        for layer, cache in zip(self._layers, caches, strict=True):
            self._attend(x @ layer.qkv.t(), layer, cache, rows, mixed)
            self._add(mixed @ layer.out.t(), x)
            self._add(self._gate(x @ layer.gate_up.t()) @ layer.down.t(), x)

    def _add(self, added: Tensor, x: Tensor) -> None:
        add_rmsnorm[(len(added),)](added, x, self._residual, self._size.hidden, self._size.norm_eps, **self._by_row)

    def _gate(self, both: Tensor) -> Tensor:
        inner = self._inner[: len(both)]
        swiglu[(len(both), triton.cdiv(inner.shape[1], 1024))](
            both, inner, inner.shape[1], SPAN=1024, PDL=self._pdl, launch_pdl=self._pdl
        )
        return inner

    def _attend(self, qkv: Tensor, layer: LayerWeights, cache: Tensor, rows: BatchRows, out: Tensor) -> None:
        size, requests = self._size, len(rows.starts) - 1
        tile, warps = attention_tile(len(qkv))
        paged_attention[(len(qkv), size.kv_heads)](
            qkv, layer.q_norm, layer.k_norm, self._angles, cache, rows.pages, rows.starts, rows.positions, rows.places,
            out, requests, size.norm_eps, size.head_dim**-0.5,
            cache.stride(0), cache.stride(2), cache.stride(1), rows.pages.stride(0),
            SHARING=size.heads // size.kv_heads, KV=size.kv_heads, DIM=size.head_dim, PAGE=cache.shape[2],
            QUERIES=max(16, triton.next_power_of_2(size.heads // size.kv_heads)), TILE=tile, TOGETHER=TOGETHER,
            REQUESTS=next(most for most in _REQUESTS if most > requests), PDL=self._pdl, num_warps=warps,
            launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list


def backbone_for(
    layers: Sequence[LayerWeights],
    norm: Tensor,
    angles: Tensor,
    size: TransformerSize,
    max_rows: int,
    *,
    streamed_layers: bool,
) -> GpuBackbone:
    """`streamed_layers`: with the kernels for a few rows, where this GPU and these sizes have them."""

    def through(some: Sequence[LayerWeights], few: StreamedLayers | None = None) -> GpuBackbone:
        return GpuBackbone(some, norm, angles, size, max(max_rows, TRIED_ROWS[-1]), few=few)

    if not streamed_layers:
        return through(layers)
    with torch.inference_mode():
        return through(layers, streamed_layers_for(layers, angles, size, through, through))
