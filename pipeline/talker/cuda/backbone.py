"""The talker's layers on a GPU, in fewer and smaller kernels than vLLM's, over vLLM's cache.

The matrix library computes the products. Attention with everything that precedes it, the gate, and each residual sum
with its norm are one kernel each. For few rows, gates, sums and norms are parts of the `StreamedProducts`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...checkpoint.checkpoint import TransformerSize
from ...cuda.chip import chip_limits
from ..reference.row_tags import TAG_CHANNELS
from .attention import PagedAttention, TritonAttention
from .backbone_kernels import BatchRows, LayerWeights, add_rmsnorm, final_norm, init_residual, init_streamed, swiglu
from .streamed_products import MOST_ROWS, StreamedProducts
from .tiles import SWIGLU_SPAN


class GpuBackbone:
    """All layers and the final norm for a batch of rows. Not thread-safe: calls share its buffers.

    Nothing waits for the device, so a call can be captured in a CUDA graph. Between two calls there must be a kernel
    that starts when all before it have ended, or the boundary of a graph: attention reads the keys of earlier steps
    before its predecessors have ended.
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        norm: Tensor,
        angles: Tensor,
        size: TransformerSize,
        max_rows: int,
        *,
        attention: PagedAttention | None = None,
        chip: ChipLimits | None = None,
        streamed: StreamedProducts | None = None,
    ) -> None:
        """`angles`: [positions, head_dim], cosines and then sines of each position.

        `attention`: in Triton by default. `chip`: what the kernels must fit in; the current GPU by default. `streamed`:
        products of few rows; by default the matrix library's.
        """
        self._streamed = streamed
        self._layers, self._norm, self._size = layers, norm, size
        self._max_rows = max_rows
        self._pdl = (chip or chip_limits()).has_early_launch
        self._attend = attention or TritonAttention(size, angles, pdl=self._pdl)
        # The residual stream as it is added to (float32), and its norm as it is multiplied.
        self._residual = norm.new_empty(max_rows, size.hidden, dtype=torch.float32)
        self._x = norm.new_empty(max_rows, size.hidden)
        self._attended = norm.new_empty(max_rows, size.heads * size.head_dim)
        self._inner = norm.new_empty(max_rows, size.intermediate)
        # Options of the kernels whose programs each take a whole row.
        self._row_options = {
            "SPAN": triton.next_power_of_2(size.hidden),
            "PDL": self._pdl,
            "launch_pdl": self._pdl,
        }

    @property
    def streams(self) -> bool:
        """Whether few rows have the `StreamedProducts`."""
        return self._streamed is not None

    def leave_products_to_library(self) -> None:
        """From now on the matrix library computes the products of few rows too."""
        self._streamed = None

    def __call__(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]) -> Tensor:
        """Hidden states after the final norm with row tags, [n, hidden + TAG_CHANNELS].

        `embedded`: [n, hidden]; `caches`: of each layer, [pages, kv_heads, page size, 2 * head_dim] with any strides.
        Raises ValueError for more than `max_rows` rows.
        """
        count, size = len(embedded), self._size
        if count > self._max_rows:
            raise ValueError(f"a batch must have at most {self._max_rows} rows, got {count}")
        if self._streamed is not None and count <= MOST_ROWS:
            residual = self._run_streamed(self._streamed, embedded, rows, caches)
        else:
            residual = self._run(embedded, rows, caches)
        out = embedded.new_empty(count, size.hidden + TAG_CHANNELS)
        final_norm[(count,)](
            residual, self._norm, rows.slots, rows.positions, out, size.hidden, size.norm_eps,
            TAGS=TAG_CHANNELS, **self._row_options,
        )  # fmt: skip  # one argument list
        return out

    def _run(self, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]) -> Tensor:
        """The residual stream behind the layers."""
        count, size = len(embedded), self._size
        x, attended = self._x[:count], self._attended[:count]
        init_residual[(count,)](embedded, x, self._residual, size.hidden, size.norm_eps, **self._row_options)
        for layer, cache in zip(self._layers, caches, strict=True):
            self._attend(x @ layer.qkv.t(), layer, cache, rows, attended)
            self._add_norm(attended @ layer.out.t(), x)
            self._add_norm(self._swiglu(x @ layer.gate_up.t()) @ layer.down.t(), x)
        return self._residual

    def _run_streamed(
        self, products: StreamedProducts, embedded: Tensor, rows: BatchRows, caches: Sequence[Tensor]
    ) -> Tensor:
        """The residual stream behind the layers, of few rows."""
        count = len(embedded)
        init_streamed[(count,)](
            embedded, products.x, products.residual, products.sum_sq, self._size.hidden,
            SUMS=products.sum_sq.shape[1], **self._row_options,
        )  # fmt: skip  # one argument list
        for layer, cache in zip(self._layers, caches, strict=True):
            self._attend(products.queries_keys_values(layer, count), layer, cache, rows, products.attended[:count])
            products.add_output_and_mlp(layer, count)
        return products.residual

    def _add_norm(self, update: Tensor, x: Tensor) -> None:
        """Add `update` to the residual stream; `x` becomes the norm of the sum."""
        add_rmsnorm[(len(update),)](
            update, x, self._residual, self._size.hidden, self._size.norm_eps, **self._row_options
        )

    def _swiglu(self, gate_up: Tensor) -> Tensor:
        inner = self._inner[: len(gate_up)]
        swiglu[(len(gate_up), triton.cdiv(inner.shape[1], SWIGLU_SPAN))](
            gate_up, inner, inner.shape[1], SPAN=SWIGLU_SPAN, PDL=self._pdl, launch_pdl=self._pdl
        )
        return inner
