"""`CodePredictor` and `CpuCodePredictor` against an independent forward pass, and against each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.cpu.predictor import CpuCodePredictor
from voxgate.pipeline.talker.reference.predictor import CodePredictor
from voxgate.pipeline.talker.reference.predictor_weights import rotary
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..small_model import small_checkpoint, small_weights
from .predictor_cases import MIN_MARGIN, ROWS, Kind, expected_codes, frames, predictor_of, sampling

both = pytest.mark.parametrize("kind", [CodePredictor, CpuCodePredictor])


@both
@pytest.mark.parametrize("hidden", [16, 24], ids=["as wide as the talker", "narrower"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("groups", [4, 16])
def test_codes_equal_an_independent_forward_pass(
    kind: Kind, checkpoint: TalkerCheckpoint, hidden: int, kv_heads: int, groups: int
) -> None:
    small = small_checkpoint(checkpoint, hidden=hidden, groups=groups, kv_heads=kv_heads)
    weights = small_weights(small)
    batch, first, noise = frames(small, ROWS, seed=1)
    codes = predictor_of(kind, small, weights)(batch, first, sampling(ROWS, small.codebook), noise)
    assert codes.shape == (ROWS, groups - 1)
    compared = 0
    for row in range(ROWS):
        expected, margin = expected_codes(small, weights, batch[row], int(first[row]), noise[row].tolist())
        if margin > MIN_MARGIN:
            compared += 1
            assert codes[row].tolist() == expected
    assert compared >= ROWS // 2


@both
def test_codes_do_not_depend_on_the_rest_of_the_batch(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=2)
    together = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    for row in range(ROWS):
        one = slice(row, row + 1)
        alone = predictor(hidden[one], first[one], sampling(1, small.codebook), noise[one])
        assert torch.equal(alone[0], together[row])


@both
def test_codes_do_not_depend_on_the_previous_frame(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    frame, other = frames(small, 3, seed=3), frames(small, 5, seed=4)

    def run(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        hidden, first, noise = batch
        return predictor(hidden, first, sampling(len(first), small.codebook), noise)

    before = run(frame)
    assert not torch.equal(run(other)[:3], before)
    assert torch.equal(run(frame), before)


@both
def test_code_depends_on_the_noise_of_its_group_and_earlier_ones_only(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint, groups=8)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=5)
    usual = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    changed = noise.clone()
    changed[:, 4] = (noise[:, 4] + 0.5) % 1
    codes = predictor(hidden, first, sampling(ROWS, small.codebook), changed)
    assert torch.equal(codes[:, :4], usual[:, :4])
    assert not torch.equal(codes[:, 4], usual[:, 4])


@both
def test_greedy_codes_do_not_depend_on_the_noise(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=6)
    greedy = sampling(ROWS, small.codebook, temperature=0.0)
    codes = [predictor(hidden, first, greedy, greedy.noise(n)) for n in (noise, 1 - noise)]
    assert torch.equal(*codes)


def test_both_predictors_draw_the_same_codes_in_a_mixed_batch(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint, groups=16)
    weights = small_weights(small)
    compiled, reference = (predictor_of(kind, small, weights, 16) for kind in (CpuCodePredictor, CodePredictor))
    temperature = torch.tensor([0.0, 0.6, 0.9, 1.3]).repeat(4)
    top_k = torch.tensor([0, 1, 5, 50]).repeat_interleave(4)
    top_p = torch.tensor([1.0, 0.9, 0.5, 0.1, 1.0, 0.7, 1.0, 0.3]).repeat(2)
    candidates = Candidates.of(temperature, top_k, top_p, small.codebook)
    differ = 0
    for seed in range(60):
        hidden, first, uniforms = frames(small, 16, seed)
        noise = candidates.noise(uniforms)
        batch = [predictor(hidden, first, candidates, noise) for predictor in (compiled, reference)]
        for row in (batch[0] != batch[1]).any(1).nonzero()[:, 0].tolist():
            differ += 1
            options = {"temperature": float(temperature[row]), "top_k": int(top_k[row]), "top_p": float(top_p[row])}
            _, margin = expected_codes(
                small,
                weights,
                hidden[row],
                int(first[row]),
                noise[row].tolist(),
                **options,
            )
            assert margin < MIN_MARGIN
    assert differ < 5


def test_rotary_frequency_falls_with_the_channel(checkpoint: TalkerCheckpoint) -> None:
    size = small_checkpoint(checkpoint).predictor
    cos, sin = rotary(torch.arange(3), size)
    assert cos.shape == sin.shape == (3, size.head_dim)
    assert torch.equal(cos[0], torch.ones(size.head_dim))
    assert float(sin[1, 0]) == pytest.approx(0.841471)
    assert float(sin[1, 1]) == pytest.approx(0.0998334)
    assert torch.equal(sin[:, : size.head_dim // 2], sin[:, size.head_dim // 2 :])
