"""The code predictor on a CPU: a frame as one compiled function (`docs/qwen3_tts.md`, section 7).

Run as single PyTorch operations, the thousand small steps of a frame cost several times what they compute. Here they
are loops compiled by numba: no dispatch, no allocation, and the weights of a pass are read once for all rows. Sums are
always taken in the same order, so a row's result does not depend, to the last bit, on the other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from voxgate.codecs.neural.cpu import jit as jit_module
from voxgate.codecs.neural.cpu.gemm import product
from voxgate.codecs.neural.cpu.jit import compile_for, jit, jit_fast_sums, sources_digest

from ...checkpoint.checkpoint import TransformerSize
from ..reference.predictor_weights import FoldedPredictor
from ..reference.sampling import Candidates
from .exponential import exp
from .sampling import draw
from .weights import Array, FrameBuffers, PanelWeights, PredictorSizes, RowSampling, allocate_buffers, array, pack

SOURCES = (Path(__file__).parent, Path(jit_module.__file__).parent)
"""Folders that the frame is compiled from."""


class CpuCodePredictor:
    """Draws the codes 1 to groups - 1 of a batch of frames, in float32. Not thread-safe: calls share its buffers.

    A row's codes are those it would get alone. The GIL is released while a frame is computed.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None:
        """Arguments as of `CodePredictor`. Compiles the frame, or loads it from the cache of an earlier start."""
        folded = FoldedPredictor.of(weights, first_embedding, size, groups)
        codebook = folded.heads[0].shape[1]
        self._groups, self._max_rows = groups, max_rows
        self._sizes = PredictorSizes(
            size.hidden, size.intermediate, size.heads, size.kv_heads, size.head_dim, codebook, size.norm_eps
        )
        self._weights = pack(folded, codebook)
        self._buffers = allocate_buffers(self._weights, self._sizes, groups, max_rows)
        self._top_p_of_one = np.ones(max_rows, np.float32)
        hidden = torch.zeros(1, first_embedding.shape[1])
        candidates = Candidates.of(torch.zeros(1), torch.ones(1, dtype=torch.int64), torch.ones(1), codebook)
        arguments = self._arguments(hidden, torch.zeros(1, dtype=torch.int64), candidates, torch.zeros(1, groups - 1))
        self._frame = compile_for(_frame, arguments, sources_digest(*SOURCES))

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes of the remaining groups, int64 [n, groups - 1]; arguments as of `CodePredictor`.

        Raises ValueError for more than `max_rows` rows.
        """
        if len(hidden) > self._max_rows:
            raise ValueError(f"a batch must have at most {self._max_rows} rows, got {len(hidden)}")
        arguments = self._arguments(hidden, first, candidates, noise)
        self._frame(*arguments)
        return torch.from_numpy(arguments[-1])

    def _arguments(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> tuple[Any, ...]:
        rows, top_k, top_p = len(hidden), candidates.top_k, candidates.top_p
        row_sampling = RowSampling(
            array(candidates.inverse_temperature.flatten()),
            np.full(rows, candidates.max_top_k) if top_k is None else array(top_k.flatten()),
            self._top_p_of_one[:rows] if top_p is None else array(top_p.flatten()),
        )
        codes = np.empty((rows, self._groups - 1), np.int64)
        return (
            self._sizes,
            self._weights,
            self._buffers,
            array(hidden.float()),
            array(first),
            row_sampling,
            array(noise),
            codes,
        )


def _frame(
    sizes: PredictorSizes,
    weights: PanelWeights,
    buffers: FrameBuffers,
    hidden: Array,
    first: NDArray[np.int64],
    row_sampling: RowSampling,
    noise: Array,
    codes: Any,
) -> None:
    """Fill `codes`, int64 [rows, groups - 1]. Position 0 is the hidden state, and no code is drawn there."""
    rows, groups = codes.shape
    if len(weights.projection):
        product(hidden, rows, weights.projection, buffers.update)
    for position in range(groups + 1):
        for row in range(rows):
            if position >= 2:
                _copy(weights.inputs[position - 1, codes[row, position - 2]], buffers.residual[row])
            elif position == 1:
                _copy(weights.inputs[0, first[row]], buffers.residual[row])
            elif len(weights.projection):
                for i in range(sizes.hidden):
                    buffers.residual[row, i] = buffers.update[row, i] + weights.bias[i]
            else:
                _copy(hidden[row], buffers.residual[row])
        _step(sizes, weights, buffers, rows, position)
        if position == 0:
            continue
        group = position - 1
        product(buffers.x, rows, weights.heads[group], buffers.logits)
        for row in range(rows):
            codes[row, group] = draw(
                buffers.logits[row, : sizes.codebook],
                row_sampling.inverse_temperature[row],
                row_sampling.top_k[row],
                row_sampling.top_p[row],
                noise[row, group],
                buffers.order,
                buffers.mass,
            )


@jit_fast_sums
def _step(sizes: PredictorSizes, weights: PanelWeights, buffers: FrameBuffers, rows: int, position: int) -> None:
    """Run the rows' `residual` through all layers at one position; leaves the final norm in `x`."""
    for row in range(rows):
        _norm(buffers.residual[row], sizes.norm_eps, buffers.x[row])
    for layer in range(len(weights.qkv)):
        product(buffers.x, rows, weights.qkv[layer], buffers.qkv)
        for row in range(rows):
            _layer_attention(sizes, weights, buffers, layer, position, row)
        product(buffers.attended, rows, weights.out[layer], buffers.update)
        for row in range(rows):
            _add_norm(buffers.residual[row], buffers.update[row], sizes.norm_eps, buffers.x[row])
        product(buffers.x, rows, weights.gate_up[layer], buffers.gate_up)
        for row in range(rows):
            _swiglu(buffers.gate_up[row], sizes.intermediate)
        product(buffers.gate_up, rows, weights.down[layer], buffers.update)
        for row in range(rows):
            _add_norm(buffers.residual[row], buffers.update[row], sizes.norm_eps, buffers.x[row])


@jit_fast_sums
def _layer_attention(
    sizes: PredictorSizes, weights: PanelWeights, buffers: FrameBuffers, layer: int, position: int, row: int
) -> None:
    """Attention of one row: reads its projections from `qkv`, extends the cache, writes `attended`."""
    d = sizes.head_dim
    qkv, rope_cos, rope_sin = buffers.qkv[row], weights.rope_cos[layer, position], weights.rope_sin[layer, position]
    keys, values = buffers.keys[layer, row], buffers.values[layer, row]
    for kv in range(sizes.kv_heads):
        h = sizes.heads + kv
        _norm_rope(qkv[h * d : (h + 1) * d], rope_cos[h], rope_sin[h], sizes.norm_eps, keys[kv, position])
        value = (h + sizes.kv_heads) * d
        for i in range(d):
            values[kv, position, i] = qkv[value + i]
    for h in range(sizes.heads):
        query, kv = qkv[h * d : (h + 1) * d], h // (sizes.heads // sizes.kv_heads)
        _norm_rope(query, rope_cos[h], rope_sin[h], sizes.norm_eps, query)
        end = position + 1
        _attend(
            query, keys[kv, :end], values[kv, :end], buffers.scores[row], buffers.attended[row, h * d : (h + 1) * d]
        )


@jit_fast_sums
def _attend(query: Array, keys: Array, values: Array, scores: Array, out: Array) -> None:
    """Attention of one head over all positions of `keys` and `values`, [positions, head_dim]."""
    positions, width = keys.shape
    for p in range(positions):
        score = np.float32(0.0)
        for i in range(width):
            score += query[i] * keys[p, i]
        scores[p] = score
    score_max = scores[0]
    for p in range(1, positions):
        score_max = max(score_max, scores[p])
    total = np.float32(0.0)
    for p in range(positions):
        scores[p] = exp(scores[p] - score_max)
        total += scores[p]
    for i in range(width):
        out[i] = np.float32(0.0)
    for p in range(positions):
        weight = scores[p] / total
        for i in range(width):
            out[i] += weight * values[p, i]


@jit_fast_sums
def _norm_rope(x: Array, rope_cos: Array, rope_sin: Array, eps: float, out: Array) -> None:
    """RMS norm and rotary embedding of one head; the rotary factors include the weights of the norm."""
    factor = _norm_factor(x, eps)
    half = len(x) // 2
    for i in range(half):
        low, high = x[i] * factor, x[i + half] * factor
        out[i] = low * rope_cos[i] + high * rope_sin[i]
        out[i + half] = high * rope_cos[i + half] + low * rope_sin[i + half]


@jit_fast_sums
def _swiglu(gate_up: Array, width: int) -> None:
    """silu(gate) * up, in place of gate."""
    for i in range(width):
        gate = gate_up[i]
        gate_up[i] = gate / (np.float32(1.0) + exp(-gate)) * gate_up[width + i]


@jit_fast_sums
def _add_norm(residual: Array, update: Array, eps: float, x: Array) -> None:
    """Add `update` to `residual`; `x` becomes the RMS norm of the sum."""
    for i in range(len(residual)):
        residual[i] += update[i]
    _norm(residual, eps, x)


@jit_fast_sums
def _norm(x: Array, eps: float, out: Array) -> None:
    """RMS norm of `x`, without weights."""
    factor = _norm_factor(x, eps)
    for i in range(len(x)):
        out[i] = x[i] * factor


@jit_fast_sums
def _norm_factor(x: Array, eps: float) -> np.float32:
    """1 / sqrt(mean(x^2) + eps)."""
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i] * x[i]
    factor: np.float32 = np.float32(1.0) / np.sqrt(total / np.float32(len(x)) + np.float32(eps))
    return factor


@jit
def _copy(x: Array, out: Array) -> None:
    """out[:] = x. Assigning a slice would compile a shape check, which takes seconds."""
    for i in range(len(out)):
        out[i] = x[i]
