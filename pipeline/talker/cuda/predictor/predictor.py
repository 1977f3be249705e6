"""The code predictor on a GPU: the computation of `CodePredictor` in as few kernels as its dependencies allow.

Small batches take one kernel for a whole frame where GPU and model allow it, large ones the matrix library's products,
those between a chain of this package's kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ....checkpoint.checkpoint import TransformerSize
from ....cuda.chip import chip_limits
from ....cuda.self_test import disabled
from ...reference.predictor_weights import FoldedLayer, FoldedPredictor, project
from ...reference.sampling import Candidates
from ..backbone_kernels import add_rmsnorm, init_residual, swiglu
from ..sampling import CodeDraw, code_draw_for
from ..sampling_kernels import WARPS, draw_code
from ..tiles import LIBRARY_ROWS, SKINNY_ROWS, SUM_COLUMNS, SWIGLU_SPAN, Epilogue, gemm_tile, skinny_tile
from .kernels import gemm, predictor_attention, skinny_gemm
from .persistent import TILE_ROWS, VARIANTS, PersistentPredictor, persistent_predictors_for

ATTENTION_WARPS = 1


class GpuCodePredictor:
    """Draws the codes 1 to groups - 1 of a batch of frames. Not thread-safe: calls share its buffers.

    Nothing waits for the device, so a call can be captured in a CUDA graph.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
        *,
        chip: ChipLimits | None = None,
        persistent_predictor: bool = True,
        library_rows: int = LIBRARY_ROWS,
        sum_columns: int = SUM_COLUMNS,
        draw: CodeDraw | None = None,
    ) -> None:
        """Arguments as of `CodePredictor`.

        `chip`: what the kernels must fit in; the current GPU by default. `persistent_predictor`: whether small batches
        take one kernel for a whole frame, where GPU and model allow it. `library_rows`: positions of a pass from which
        the matrix library computes its products, in half precision. `sum_columns`: columns of the residual stream whose
        squares are summed as one block, at most those of the narrowest tile. `draw`: where the weights are on no GPU.
        """
        folded = FoldedPredictor.of(weights, first_embedding, size, groups)
        self._size, self._groups, self._max_rows = size, groups, max_rows
        self._projection, self._bias = folded.projection, folded.bias
        self._inputs = [table.contiguous() for table in folded.inputs]
        self._heads = [head.t().contiguous() for head in folded.heads]
        self._layers = [_TransposedLayer.of(layer) for layer in folded.layers]
        like = folded.heads[0]
        self._chip = chip or chip_limits()
        self._pdl = self._chip.has_early_launch
        self._is_float32 = like.dtype is torch.float32
        self._library_rows = library_rows
        heads, kv, dim = size.heads, size.kv_heads, size.head_dim
        self._sum_columns = sum_columns
        self._blocks = triton.cdiv(size.hidden, sum_columns)
        # Options of the kernels whose programs each take a whole row.
        self._row_options = {
            "SPAN": triton.next_power_of_2(size.hidden), "PDL": self._pdl, "launch_pdl": self._pdl
        }  # fmt: skip  # one mapping
        # The residual stream as it is added to (float32), as it is multiplied, and its sums of squares by block. The
        # first pass takes two positions of each row.
        self._residual = like.new_empty(2 * max_rows, size.hidden, dtype=torch.float32)
        self._x = like.new_empty(2 * max_rows, size.hidden)
        self._sum_sq = like.new_zeros(2 * max_rows, self._blocks, dtype=torch.float32)
        self._qkv = like.new_empty(2 * max_rows, (heads + 2 * kv) * dim)
        self._attended = like.new_empty(2 * max_rows, heads * dim)
        self._inner = like.new_empty(2 * max_rows, size.intermediate)
        self._logits = like.new_empty(max_rows, like.shape[1], dtype=torch.float32)
        self._draw = code_draw_for(like.shape[1], size.hidden, like.dtype, self._chip) if like.is_cuda else draw
        self._cache = like.new_zeros(size.layers, 2, max_rows, kv, groups, dim)
        # By tiles of TILE_ROWS rows.
        self._persistent: dict[int, PersistentPredictor] = {}
        if not persistent_predictor:
            for path in VARIANTS.values():
                disabled(path, "it is left out, as behind the loss of an engine", expected=True)
        elif like.is_cuda:
            self._persistent = persistent_predictors_for(
                folded, size, groups, self._chip, self._codes_and_logits, max_rows
            )

    def is_persistent(self, rows: int) -> bool:
        """Whether a batch of `rows` takes one kernel for a whole frame."""
        return triton.cdiv(rows, TILE_ROWS) in self._persistent

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes of the remaining groups, int64 [n, groups - 1]; arguments as of `CodePredictor`.

        Raises ValueError for more than `max_rows` rows.
        """
        rows = len(hidden)
        if rows > self._max_rows:
            raise ValueError(f"a batch must have at most {self._max_rows} rows, got {rows}")
        start = project(hidden, self._projection, self._bias)
        if persistent := self._persistent.get(triton.cdiv(rows, TILE_ROWS)):
            return persistent(start, first, candidates, noise)
        return self._run(start, first, candidates, noise)

    def _run(self, start: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """The codes by one kernel after the other; `start`: projected hidden states, [n, hidden]."""
        rows, last = len(start), self._groups - 2
        codes = torch.empty(rows, self._groups - 1, dtype=torch.int64, device=start.device)
        noise = noise.contiguous()
        self._start_pass(torch.cat([start, self._inputs[0][first]]))
        for group in range(self._groups - 1):
            begin, count = (rows, 2 * rows) if group == 0 else (0, rows)
            by_library = count >= self._library_rows and not self._is_float32
            (self._library_pass if by_library else self._pass)(count, rows, group)
            # Behind a pass by the library `_x` is normed.
            self._linear(
                self._x[begin:count], self._heads[group], self._logits[:rows], Epilogue.STORE, begin,
                norm=not by_library,
            )  # fmt: skip  # one argument list
            if self._draw is not None:
                next_inputs = None if group == last else self._inputs[group + 1]
                self._draw(
                    self._logits, candidates, noise, group, codes, next_inputs, self._x, self._residual, self._sum_sq
                )
                continue
            draw_code[(rows,)](
                self._logits, codes, self._inputs[min(group + 1, last)], self._x, self._residual, self._sum_sq,
                candidates.inverse_temperature, candidates.top_k, candidates.top_p, noise, group, self._groups - 1,
                self._logits.shape[1], self._size.hidden,
                SPAN=triton.next_power_of_2(self._logits.shape[1]), LINE=triton.next_power_of_2(self._size.hidden),
                BLOCKS=self._blocks, SPREAD=triton.next_power_of_2(self._blocks), LAST=group == last,
                PDL=self._pdl, num_warps=WARPS, launch_pdl=self._pdl,
            )  # fmt: skip  # one argument list
        return codes

    def _codes_and_logits(
        self, start: Tensor, first: Tensor, candidates: Candidates, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `_run`, and the logits of the last group: what the persistent predictor is compared with."""
        codes = self._run(start, first, candidates, noise)
        return codes, self._logits[: len(start)].clone()

    def _start_pass(self, x: Tensor) -> None:
        # Operations of PyTorch, which no kernel overtakes: `draw_codes.cu` reads options before it waits.
        count = len(x)
        self._x[:count] = x
        self._residual[:count] = x
        self._sum_sq[:count] = 0
        self._sum_sq[:count, 0] = x.float().square().sum(1)

    def _pass(self, count: int, rows: int, group: int) -> None:
        """Every layer over the first `count` rows of `_x`; the first pass takes two positions of each of `rows`."""
        x, qkv, attended, inner = self._x[:count], self._qkv[:count], self._attended[:count], self._inner[:count]
        for layer, cache in zip(self._layers, self._cache, strict=True):
            self._linear(x, layer.qkv, qkv, Epilogue.STORE, norm=True)
            self._attend(qkv, layer, cache, attended, rows, group)
            self._linear(attended, layer.out, x, Epilogue.ADD)
            self._linear(x, layer.gate_up, inner, Epilogue.SWIGLU, norm=True)
            self._linear(inner, layer.down, x, Epilogue.ADD)

    def _library_pass(self, count: int, rows: int, group: int) -> None:
        """As `_pass`, and `_x` ends normed: products of the matrix library, with the backbone's kernels between."""
        size, row_options = self._size, self._row_options
        x, residual, attended = self._x[:count], self._residual[:count], self._attended[:count]
        qkv, inner = self._qkv[:count], self._inner[:count]
        init_residual[(count,)](x, x, residual, size.hidden, size.norm_eps, **row_options)
        for layer, cache in zip(self._layers, self._cache, strict=True):
            torch.mm(x, layer.qkv.t(), out=qkv)
            self._attend(qkv, layer, cache, attended, rows, group)
            add_rmsnorm[(count,)](attended @ layer.out.t(), x, residual, size.hidden, size.norm_eps, **row_options)
            swiglu[(count, triton.cdiv(size.intermediate, SWIGLU_SPAN))](
                x @ layer.gate_up.t(), inner, size.intermediate, SPAN=SWIGLU_SPAN, PDL=self._pdl, launch_pdl=self._pdl
            )
            add_rmsnorm[(count,)](inner @ layer.down.t(), x, residual, size.hidden, size.norm_eps, **row_options)

    def _attend(
        self, qkv: Tensor, layer: _TransposedLayer, cache: Tensor, attended: Tensor, rows: int, group: int
    ) -> None:
        size, (keys, values) = self._size, cache
        position = group + 1
        predictor_attention[(rows, size.kv_heads)](
            qkv, layer.rope_cos, layer.rope_sin, keys, values, attended, position, rows,
            size.norm_eps,
            SHARING=size.heads // size.kv_heads, KV=size.kv_heads, DIM=size.head_dim,
            SPAN=triton.next_power_of_2(position), LONGEST=self._groups, FIRST=group == 0,
            PDL=self._pdl, num_warps=ATTENTION_WARPS, launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list

    def _linear(
        self, x: Tensor, weight: Tensor, out: Tensor, epilogue: Epilogue, begin: int = 0, *, norm: bool = False
    ) -> None:
        """`x` [n, inner] times `weight` [width or twice that, inner], to `out` [n, width].

        `begin`: the row of the residual stream that the first row belongs to.
        """
        height, inner = x.shape
        width = out.shape[1]
        common = (x, weight, out, self._residual[begin:], self._sum_sq[begin:], height, width, self._size.norm_eps)
        blocks = {
            "BLOCKS": self._blocks, "SPREAD": triton.next_power_of_2(self._blocks), "SUM_COLUMNS": self._sum_columns
        }  # fmt: skip  # one mapping
        if height <= SKINNY_ROWS and not self._is_float32:
            skinny = skinny_tile(height, inner, width, self._chip)
            skinny_gemm[(triton.cdiv(width, skinny.columns), triton.cdiv(height, skinny.rows))](
                *common, INNER=inner, SLICES=skinny.warps, SPAN=skinny.padded_inner(inner) // skinny.warps,
                ROWS=skinny.rows, COLUMNS=skinny.columns, **blocks, NORM=norm, EPILOGUE=int(epilogue), PDL=self._pdl,
                num_warps=skinny.warps, launch_pdl=self._pdl,
            )  # fmt: skip  # one argument list
            return
        tile = gemm_tile(height, inner, width, epilogue, self._chip, exact=self._is_float32)
        gemm[(triton.cdiv(width, tile.columns), triton.cdiv(height, tile.rows))](
            *common, INNER=inner, SPAN=tile.span, ROWS=tile.rows, COLUMNS=tile.columns, **blocks, NORM=norm,
            EPILOGUE=int(epilogue), PDL=self._pdl, num_warps=tile.warps, num_stages=tile.stages, launch_pdl=self._pdl,
        )  # fmt: skip  # one argument list


@dataclass(frozen=True, slots=True)
class _TransposedLayer:
    """`FoldedLayer` with its matrices as [out, in], so that the weights of a column are contiguous."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    rope_cos: Tensor
    rope_sin: Tensor

    @classmethod
    def of(cls, layer: FoldedLayer) -> _TransposedLayer:
        return cls(
            layer.qkv.t().contiguous(),
            layer.out.t().contiguous(),
            layer.gate_up.t().contiguous(),
            layer.down.t().contiguous(),
            layer.rope_cos.contiguous(),
            layer.rope_sin.contiguous(),
        )
