"""The code predictor's frame as one compiled function (section B.6), for processors without an accelerator.

Started one by one, the thousand small operations of a frame cost several times what they compute. Here they are loops
that numba compiles: no operation to start, nothing allocated, the weights of a pass read once for all rows. A sum is
always taken in the same order, so a row's result does not depend, to the last bit, on the rows around it.
"""
# TODO-DOC The code predictor on a CPU: the same maths as `CodePredictor`, as one compiled function a frame.

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checkpoint import TransformerSize
from ..reference.predictor_weights import FoldedPredictor
from ..reference.sampling import Candidates
from .gemm import multiply
from .jit import compiled, exp, reordered
from .sampling import draw
from .weights import Array, FrameBuffers, PanelWeights, PredictorSizes, RowSampling, array, pack, scratch

log = logging.getLogger(__name__)


@compiled
def _copy(x: Array, out: Array) -> None:
    # Assigning a slice would compile a check of shapes, whose message takes seconds to compile.
    for i in range(len(out)):
        out[i] = x[i]


@reordered
def _norm_factor(x: Array, eps: float) -> np.float32:
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i] * x[i]
    factor: np.float32 = np.float32(1.0) / np.sqrt(total / np.float32(len(x)) + np.float32(eps))
    return factor


@reordered
def _norm(x: Array, eps: float, out: Array) -> None:
    factor = _norm_factor(x, eps)
    for i in range(len(x)):
        out[i] = x[i] * factor


@reordered
def _norm_rope(x: Array, rope_cos: Array, rope_sin: Array, eps: float, out: Array) -> None:
    """Norm and rotary embedding of one head; the angles carry the norm's weights."""
    factor = _norm_factor(x, eps)
    half = len(x) // 2
    for i in range(half):
        low, high = x[i] * factor, x[i + half] * factor
        out[i] = low * rope_cos[i] + high * rope_sin[i]
        out[i + half] = high * rope_cos[i + half] + low * rope_sin[i + half]


@reordered
def _attend(query: Array, keys: Array, values: Array, scores: Array, out: Array) -> None:
    """Attention of one head over all positions of `keys` and `values`, [positions, head_dim]."""
    positions, width = keys.shape
    for p in range(positions):
        score = np.float32(0.0)
        for i in range(width):
            score += query[i] * keys[p, i]
        scores[p] = score
    most = scores[0]
    for p in range(1, positions):
        most = max(most, scores[p])
    total = np.float32(0.0)
    for p in range(positions):
        scores[p] = exp(scores[p] - most)
        total += scores[p]
    for i in range(width):
        out[i] = np.float32(0.0)
    for p in range(positions):
        share = scores[p] / total
        for i in range(width):
            out[i] += share * values[p, i]


@reordered
def _layer_attention(z: PredictorSizes, w: PanelWeights, s: FrameBuffers, layer: int, position: int, row: int) -> None:
    """From the row's projections in `qkv` to what its heads attend to, in `mixed`."""
    d = z.head_dim
    qkv, rope_cos, rope_sin = s.qkv[row], w.rope_cos[layer, position], w.rope_sin[layer, position]
    keys, values = s.keys[layer, row], s.values[layer, row]
    for kv in range(z.kv_heads):
        h = z.heads + kv
        _norm_rope(qkv[h * d : (h + 1) * d], rope_cos[h], rope_sin[h], z.norm_eps, keys[kv, position])
        value = (h + z.kv_heads) * d
        for i in range(d):
            values[kv, position, i] = qkv[value + i]
    for h in range(z.heads):
        query, kv = qkv[h * d : (h + 1) * d], h // (z.heads // z.kv_heads)
        _norm_rope(query, rope_cos[h], rope_sin[h], z.norm_eps, query)
        end = position + 1
        _attend(query, keys[kv, :end], values[kv, :end], s.scores[row], s.mixed[row, h * d : (h + 1) * d])


@reordered
def _swiglu(gate_up: Array, width: int) -> None:
    """silu(gate) * up, in place of gate."""
    for i in range(width):
        gate = gate_up[i]
        gate_up[i] = gate / (np.float32(1.0) + exp(-gate)) * gate_up[width + i]


@reordered
def _add_norm(residual: Array, update: Array, eps: float, x: Array) -> None:
    for i in range(len(residual)):
        residual[i] += update[i]
    _norm(residual, eps, x)


@reordered
def _step(z: PredictorSizes, w: PanelWeights, s: FrameBuffers, rows: int, position: int) -> None:
    """Take the rows' `residual` through all layers at one position; leaves the final norm in `x`."""
    for row in range(rows):
        _norm(s.residual[row], z.norm_eps, s.x[row])
    for layer in range(len(w.qkv)):
        multiply(s.x, rows, w.qkv[layer], s.qkv)
        for row in range(rows):
            _layer_attention(z, w, s, layer, position, row)
        multiply(s.mixed, rows, w.out[layer], s.update)
        for row in range(rows):
            _add_norm(s.residual[row], s.update[row], z.norm_eps, s.x[row])
        multiply(s.x, rows, w.gate_up[layer], s.gate_up)
        for row in range(rows):
            _swiglu(s.gate_up[row], z.intermediate)
        multiply(s.gate_up, rows, w.down[layer], s.update)
        for row in range(rows):
            _add_norm(s.residual[row], s.update[row], z.norm_eps, s.x[row])


def _frame(
    z: PredictorSizes,
    w: PanelWeights,
    s: FrameBuffers,
    hidden: Array,
    first: NDArray[np.int64],
    row_sampling: RowSampling,
    noise: Array,
    codes: Any,
) -> None:
    """Fill `codes`, int64 [rows, groups - 1]; the hidden state alone is position 0, from which nothing is drawn."""
    rows, groups = codes.shape
    if len(w.projection):
        multiply(hidden, rows, w.projection, s.update)
    for position in range(groups + 1):
        for row in range(rows):
            if position >= 2:
                _copy(w.inputs[position - 1, codes[row, position - 2]], s.residual[row])
            elif position == 1:
                _copy(w.inputs[0, first[row]], s.residual[row])
            elif len(w.projection):
                for i in range(z.hidden):
                    s.residual[row, i] = s.update[row, i] + w.bias[i]
            else:
                _copy(hidden[row], s.residual[row])
        _step(z, w, s, rows, position)
        if position == 0:
            continue
        group = position - 1
        multiply(s.x, rows, w.heads[group], s.logits)
        for row in range(rows):
            codes[row, group] = draw(
                s.logits[row, : z.codebook],
                row_sampling.inverse_temperature[row],
                row_sampling.limit[row],
                row_sampling.top_p[row],
                noise[row, group],
                s.order,
                s.mass,
            )


def compile_frame(*arguments: Any) -> Callable[..., None]:
    """`_frame` compiled for arguments of these types, from the disk where it has been compiled before."""
    try:
        return _compile(arguments, keep=True)
    except (OSError, RuntimeError) as error:
        log.warning("the compiled code predictor cannot be kept for the next start: %s", error)
        return _compile(arguments, keep=False)


def sources_digest(folder: Path) -> str:
    """Of all that a frame is compiled from. Raises OSError."""
    sources = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _compile(arguments: tuple[Any, ...], keep: bool) -> Callable[..., None]:
    if keep:
        # Kept by its name: numba itself would notice only changes of the file that the function is in.
        _frame.__qualname__ = f"frame_{sources_digest(Path(__file__).parent)}"
    frame = numba.njit(cache=keep, nogil=True, error_model="numpy", boundscheck=False)(_frame)
    frame.compile(tuple(numba.typeof(argument) for argument in arguments))
    # Arguments of other types are a mistake, not a reason to compile in the middle of a frame.
    frame.disable_compile()
    return cast(Callable[..., None], frame)


class CpuCodePredictor:
    """Draws the codes 1 to groups-1 of a batch of frames, in float32. Not thread-safe: it owns shared scratch.

    A row's codes are those it would get alone. The GIL is released meanwhile.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        first_embedding: Tensor,
        size: TransformerSize,
        groups: int,
        max_rows: int,
    ) -> None:
        """As `CodePredictor`; compiles its code, or loads it where an earlier start has left it."""
        folded = FoldedPredictor.of(weights, first_embedding, size, groups)
        codebook = folded.heads[0].shape[1]
        self._groups, self._max_rows = groups, max_rows
        self._sizes = PredictorSizes(
            size.hidden, size.intermediate, size.heads, size.kv_heads, size.head_dim, codebook, size.norm_eps
        )
        self._weights = pack(folded, codebook)
        self._scratch = scratch(self._weights, self._sizes, groups, max_rows)
        self._certain = np.ones(max_rows, np.float32)
        hidden = torch.zeros(1, first_embedding.shape[1])
        candidates = Candidates.of(torch.zeros(1), torch.ones(1, dtype=torch.int64), torch.ones(1), codebook)
        arguments = self._arguments(hidden, torch.zeros(1, dtype=torch.int64), candidates, torch.zeros(1, groups - 1))
        self._frame = compile_frame(*arguments)

    def __call__(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes of the remaining groups, int64 [n, groups - 1]; arguments as of `CodePredictor`, n up to max_rows."""
        if len(hidden) > self._max_rows:
            raise ValueError(f"{len(hidden)} rows are more than the {self._max_rows} prepared for")
        arguments = self._arguments(hidden, first, candidates, noise)
        self._frame(*arguments)
        return torch.from_numpy(arguments[-1])

    def _arguments(self, hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> tuple[Any, ...]:
        rows, limit, top_p = len(hidden), candidates.limit, candidates.top_p
        row_sampling = RowSampling(
            array(candidates.inverse_temperature.flatten()),
            np.full(rows, candidates.most) if limit is None else array(limit.flatten()),
            self._certain[:rows] if top_p is None else array(top_p.flatten()),
        )
        codes = np.empty((rows, self._groups - 1), np.int64)
        return (
            self._sizes,
            self._weights,
            self._scratch,
            array(hidden.float()),
            array(first),
            row_sampling,
            array(noise),
            codes,
        )
