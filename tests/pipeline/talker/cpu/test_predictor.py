"""What only `CpuCodePredictor` promises: exact sums in any batch, ties by id, and what its compilation depends on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.cpu.predictor import SOURCES, CpuCodePredictor
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..reference.predictor_cases import ROWS, frames, predictor_of, sampling
from ..small_model import PREDICTOR, small_checkpoint, small_weights


@pytest.mark.parametrize("hidden", [16, 24], ids=["as wide as the talker", "narrower"])
def test_row_is_equal_to_the_last_bit_in_any_batch(checkpoint: TalkerCheckpoint, hidden: int) -> None:
    small = small_checkpoint(checkpoint, hidden=hidden, groups=8, kv_heads=1)
    predictor = predictor_of(CpuCodePredictor, small, small_weights(small), 16)
    assert isinstance(predictor, CpuCodePredictor)
    states, first, noise = frames(small, 16, seed=7)

    def last_states(rows: list[int]) -> Tensor:
        predictor(states[rows], first[rows], sampling(len(rows), small.codebook), noise[rows])
        return torch.from_numpy(predictor._buffers.x[: len(rows)].copy())

    alone = torch.cat([last_states([row]) for row in range(16)])
    for count in range(2, 17):
        for start in range(16):
            rows = [(start + i) % 16 for i in range(count)]
            assert torch.equal(last_states(rows), alone[rows])


@pytest.mark.parametrize(
    ("top_k", "top_p", "count"), [(0, 1.0, 20), (5, 1.0, 5), (0, 0.5, 10), (8, 0.5, 4), (1, 1.0, 1)]
)
def test_equal_candidates_share_the_noise_evenly_lower_id_first(
    checkpoint: TalkerCheckpoint, top_k: int, top_p: float, count: int
) -> None:
    small = small_checkpoint(checkpoint)
    weights = small_weights(small)
    for group in range(small.groups - 1):
        weights[f"{PREDICTOR}lm_head.{group}.weight"].zero_()
    predictor = predictor_of(CpuCodePredictor, small, weights)
    hidden, first, _ = frames(small, ROWS, seed=8)
    noise = torch.rand(ROWS, small.groups - 1, generator=torch.Generator().manual_seed(9))
    noise[0] = 1 - 2**-24
    options = torch.full((ROWS,), 0.8), torch.full((ROWS,), top_k), torch.full((ROWS,), top_p - 1e-3 * (top_p < 1))
    codes = predictor(hidden, first, Candidates.of(*options, small.codebook), noise)
    assert torch.equal(codes, (noise * count).long())


def test_nan_in_one_row_still_gives_codes_and_leaves_other_rows(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(CpuCodePredictor, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=10)
    usual = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    hidden[1] = torch.nan
    codes = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    assert ((codes >= 0) & (codes < small.codebook)).all()
    others = [row for row in range(ROWS) if row != 1]
    assert torch.equal(codes[others], usual[others])


def test_batch_above_max_rows_raises_value_error(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(CpuCodePredictor, small, small_weights(small), 2)
    hidden, first, noise = frames(small, 3, seed=11)
    with pytest.raises(ValueError, match="got 3"):
        predictor(hidden, first, sampling(3, small.codebook), noise)


def test_digest_covers_the_sources_of_the_predictor() -> None:
    sources = {path.name for folder in SOURCES for path in folder.glob("*.py")}
    assert {"predictor.py", "gemm.py", "sampling.py", "weights.py", "exponential.py", "jit.py"} <= sources
