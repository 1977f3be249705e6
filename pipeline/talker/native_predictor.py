"""The code predictor on a CPU: the same maths as `CodePredictor`, as one compiled function a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import TransformerSize
from .native_kernels import PANEL, Array, Odds, Scratch, Sizes, Weights, compile_frame
from .predictor_weights import FoldedPredictor
from .sampling import Candidates


class NativeCodePredictor:
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
        self._sizes = Sizes(
            size.hidden, size.intermediate, size.heads, size.kv_heads, size.head_dim, codebook, size.norm_eps
        )
        self._weights = _weights(folded, codebook)
        self._scratch = _scratch(self._weights, self._sizes, groups, max_rows)
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
        odds = Odds(
            _array(candidates.inverse_temperature.flatten()),
            np.full(rows, candidates.most) if limit is None else _array(limit.flatten()),
            self._certain[:rows] if top_p is None else _array(top_p.flatten()),
        )
        codes = np.empty((rows, self._groups - 1), np.int64)
        return (
            self._sizes,
            self._weights,
            self._scratch,
            _array(hidden.float()),
            _array(first),
            odds,
            _array(noise),
            codes,
        )


def _array(tensor: Tensor) -> Any:
    # Compiled code takes arrays of the layout it was compiled for and no other.
    return tensor.contiguous().numpy()


def _weights(folded: FoldedPredictor, codebook: int) -> Weights:
    hidden = folded.inputs[0].shape[1]
    projection, bias = folded.projection, folded.bias
    if projection is None or bias is None:
        projection, bias = torch.zeros(0, hidden), torch.zeros(0)
    layers = folded.layers
    return Weights(
        projection=_panels([projection.t()])[0],
        bias=_array(bias.float()),
        inputs=_array(torch.stack([table[:codebook].float() for table in folded.inputs])),
        qkv=_panels([layer.qkv for layer in layers]),
        out=_panels([layer.out for layer in layers]),
        gate_up=_panels([layer.gate_up for layer in layers]),
        down=_panels([layer.down for layer in layers]),
        turn=_array(torch.stack([layer.turn.float() for layer in layers])),
        cross=_array(torch.stack([layer.cross.float() for layer in layers])),
        heads=_panels(folded.heads),
    )


def _panels(matrices: Sequence[Tensor]) -> Array:
    """[layers, n / PANEL rounded up, k, PANEL] of matrices [k, n]."""
    stack = torch.stack([matrix.float() for matrix in matrices])
    stack = F.pad(stack, (0, -stack.shape[2] % PANEL))
    # PyTorch's memory, unlike NumPy's, begins at a cache line, so that no load crosses one.
    layers, depth, width = stack.shape
    panels: Array = _array(stack.view(layers, depth, width // PANEL, PANEL).transpose(1, 2))
    return panels


def _scratch(w: Weights, z: Sizes, groups: int, rows: int) -> Scratch:
    def buffer(*shape: int) -> Array:
        array: Array = torch.zeros(rows, *shape).numpy()
        return array

    def output(panels: Array) -> Array:
        return buffer(panels.shape[-3] * PANEL)

    cache = (len(w.qkv), rows, z.kv_heads, groups, z.head_dim)
    return Scratch(
        residual=buffer(z.hidden),
        x=buffer(z.hidden),
        qkv=output(w.qkv),
        mixed=buffer(z.heads * z.head_dim),
        update=output(w.out),
        gate_up=output(w.gate_up),
        logits=output(w.heads),
        scores=buffer(groups),
        keys=torch.zeros(cache).numpy(),
        values=torch.zeros(cache).numpy(),
        order=np.zeros(z.codebook, np.int64),
        mass=np.zeros(z.codebook),
    )
