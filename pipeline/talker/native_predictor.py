"""The code predictor on a CPU: the same maths as `CodePredictor`, as one compiled function a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoint import TransformerSize
from .native_arrays import Odds, Sizes, array, pack, scratch
from .native_frame import compile_frame
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
        odds = Odds(
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
            odds,
            array(noise),
            codes,
        )
