"""Both code predictors against a plain forward of the same weights, and against each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.pipeline.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.cpu.predictor import CpuCodePredictor
from voxgate.pipeline.talker.reference.predictor import CodePredictor, Predictor
from voxgate.pipeline.talker.reference.predictor_weights import rotary
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..plain_talker import Stack, choose
from ..small_model import PREDICTOR, plain_config, small_checkpoint, small_weights

ROWS = 6
CAREFUL = 1e-4
"""A draw nearer to another answer than this may fall either way by rounding."""


Kind = type[Predictor]
both = pytest.mark.parametrize("kind", [CodePredictor, CpuCodePredictor])


def predictor_of(kind: Kind, checkpoint: TalkerCheckpoint, weights: dict[str, Tensor], rows: int = ROWS) -> Predictor:
    first = weights["talker.model.codec_embedding.weight"]
    return kind(weights, first, checkpoint.predictor, checkpoint.groups, rows)


def plain_codes(
    checkpoint: TalkerCheckpoint,
    weights: dict[str, Tensor],
    hidden: Tensor,
    first: int,
    noise: list[float],
    *,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[list[int], float]:
    """Section B.6 written out for one frame: the codes, and the nearest that any draw came to another answer."""
    stack = Stack(weights, f"{PREDICTOR}model.", plain_config(checkpoint.predictor))
    projection = f"{PREDICTOR}small_to_mtp_projection."

    def narrow(x: Tensor) -> Tensor:
        weight = weights.get(projection + "weight")
        return x if weight is None else F.linear(x, weight, weights[projection + "bias"])

    cache: list = []
    codes, nearest = [], 1.0
    x = torch.stack([narrow(hidden), narrow(weights["talker.model.codec_embedding.weight"][first])])
    for group, u in enumerate(noise):
        logits = weights[f"{PREDICTOR}lm_head.{group}.weight"] @ stack.run(x, cache)[-1]
        code, margin = choose(logits, temperature, top_k, top_p, u)
        codes.append(code)
        nearest = min(nearest, margin)
        x = narrow(weights[f"{PREDICTOR}model.codec_embedding.{group}.weight"][code])[None]
    return codes, nearest


def sampling(rows: int, vocab: int, temperature: float = 0.8) -> Candidates:
    return Candidates.of(torch.full((rows,), temperature), torch.zeros(rows, dtype=torch.long), torch.ones(rows), vocab)


def frames(checkpoint: TalkerCheckpoint, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, codes of codebook 0 and noise for a batch."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, checkpoint.talker.hidden, generator=generator)
    first = torch.randint(checkpoint.codebook, (rows,), generator=generator)
    return hidden, first, torch.rand(rows, checkpoint.groups - 1, generator=generator)


@both
@pytest.mark.parametrize("hidden", [16, 24], ids=["as wide as the talker", "narrower"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("groups", [4, 16])
def test_codes_are_those_of_a_plain_forward(
    kind: Kind, checkpoint: TalkerCheckpoint, hidden: int, kv_heads: int, groups: int
) -> None:
    small = small_checkpoint(checkpoint, hidden=hidden, groups=groups, kv_heads=kv_heads)
    weights = small_weights(small)
    batch, first, noise = frames(small, ROWS, seed=1)
    made = predictor_of(kind, small, weights)(batch, first, sampling(ROWS, small.codebook), noise)
    assert made.shape == (ROWS, groups - 1)
    compared = 0
    for row in range(ROWS):
        expected, nearest = plain_codes(small, weights, batch[row], int(first[row]), noise[row].tolist())
        if nearest > CAREFUL:
            compared += 1
            assert made[row].tolist() == expected
    assert compared >= ROWS // 2


@both
def test_a_row_does_not_depend_on_its_company(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=2)
    together = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    for row in range(ROWS):
        one = slice(row, row + 1)
        alone = predictor(hidden[one], first[one], sampling(1, small.codebook), noise[one])
        assert torch.equal(alone[0], together[row])


@both
def test_nothing_of_the_frame_before_stays(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    frame, other = frames(small, 3, seed=3), frames(small, 5, seed=4)

    def say(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        hidden, first, noise = batch
        return predictor(hidden, first, sampling(len(first), small.codebook), noise)

    before = say(frame)
    assert not torch.equal(say(other)[:3], before)
    assert torch.equal(say(frame), before)


@both
def test_each_code_hangs_on_the_noise_of_its_own_group_and_those_before(
    kind: Kind, checkpoint: TalkerCheckpoint
) -> None:
    small = small_checkpoint(checkpoint, groups=8)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=5)
    usual = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    changed = noise.clone()
    changed[:, 4] = (noise[:, 4] + 0.5) % 1
    made = predictor(hidden, first, sampling(ROWS, small.codebook), changed)
    assert torch.equal(made[:, :4], usual[:, :4])
    assert not torch.equal(made[:, 4], usual[:, 4])


@both
def test_greedy_codes_need_no_noise(kind: Kind, checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(kind, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=6)
    greedy = sampling(ROWS, small.codebook, temperature=0.0)
    made = [predictor(hidden, first, greedy, greedy.noise(n)) for n in (noise, 1 - noise)]
    assert torch.equal(*made)


def test_both_draw_the_same_codes_in_a_mixed_batch(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint, groups=16)
    weights = small_weights(small)
    native, plain_torch = (predictor_of(kind, small, weights, 16) for kind in (CpuCodePredictor, CodePredictor))
    temperature = torch.tensor([0.0, 0.6, 0.9, 1.3]).repeat(4)
    top_k = torch.tensor([0, 1, 5, 50]).repeat_interleave(4)
    top_p = torch.tensor([1.0, 0.9, 0.5, 0.1, 1.0, 0.7, 1.0, 0.3]).repeat(2)
    candidates = Candidates.of(temperature, top_k, top_p, small.codebook)
    differ = 0
    for seed in range(60):
        hidden, first, uniforms = frames(small, 16, seed)
        noise = candidates.noise(uniforms)
        batch = [predictor(hidden, first, candidates, noise) for predictor in (native, plain_torch)]
        for row in (batch[0] != batch[1]).any(1).nonzero()[:, 0].tolist():
            differ += 1
            options = {"temperature": float(temperature[row]), "top_k": int(top_k[row]), "top_p": float(top_p[row])}
            _, nearest = plain_codes(
                small,
                weights,
                hidden[row],
                int(first[row]),
                noise[row].tolist(),
                **options,
            )
            assert nearest < CAREFUL
    assert differ < 5


@pytest.mark.parametrize("hidden", [16, 24], ids=["as wide as the talker", "narrower"])
def test_a_row_is_the_same_to_the_last_bit_in_any_batch(checkpoint: TalkerCheckpoint, hidden: int) -> None:
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
    ("top_k", "top_p", "kept"), [(0, 1.0, 20), (5, 1.0, 5), (0, 0.5, 10), (8, 0.5, 4), (1, 1.0, 1)]
)
def test_equal_candidates_share_the_noise_evenly_the_lower_id_first(
    checkpoint: TalkerCheckpoint, top_k: int, top_p: float, kept: int
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
    made = predictor(hidden, first, Candidates.of(*options, small.codebook), noise)
    assert torch.equal(made, (noise * kept).long())


def test_a_hidden_state_that_is_no_number_still_makes_codes(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(CpuCodePredictor, small, small_weights(small))
    hidden, first, noise = frames(small, ROWS, seed=10)
    usual = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    hidden[1] = torch.nan
    made = predictor(hidden, first, sampling(ROWS, small.codebook), noise)
    assert ((made >= 0) & (made < small.codebook)).all()
    others = [row for row in range(ROWS) if row != 1]
    assert torch.equal(made[others], usual[others])


def test_more_rows_than_prepared_for_are_refused(checkpoint: TalkerCheckpoint) -> None:
    small = small_checkpoint(checkpoint)
    predictor = predictor_of(CpuCodePredictor, small, small_weights(small), 2)
    hidden, first, noise = frames(small, 3, seed=11)
    with pytest.raises(ValueError, match="got 3"):
        predictor(hidden, first, sampling(3, small.codebook), noise)


def test_rotary_angles_turn_faster_in_the_first_channels(checkpoint: TalkerCheckpoint) -> None:
    size = small_checkpoint(checkpoint).predictor
    cos, sin = rotary(torch.arange(3), size)
    assert cos.shape == sin.shape == (3, size.head_dim)
    assert torch.equal(cos[0], torch.ones(size.head_dim))
    assert float(sin[1, 0]) == pytest.approx(0.841471)
    assert float(sin[1, 1]) == pytest.approx(0.0998334)
    assert torch.equal(sin[:, : size.head_dim // 2], sin[:, size.head_dim // 2 :])
