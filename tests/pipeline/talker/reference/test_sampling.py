"""Noise as a function of the seed, and draws as a function of logits, noise and the row's own options."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from voxgate.pipeline.talker.reference.sampling import Candidates, penalise, uniform

from ..plain_talker import choose, noise

VOCAB = 40
SEEDS = st.integers(-(2**63), 2**63 - 1)


def candidates(*rows: tuple[float, int, float], vocab: int = VOCAB) -> Candidates:
    """Candidates of rows (temperature, top-k, top-p)."""
    temperature, top_k, top_p = (torch.tensor(column) for column in zip(*rows, strict=True))
    return Candidates.of(temperature.float(), top_k, top_p.float(), vocab)


def logits_of(rows: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def draw_evenly(row: tuple[float, int, float], logits: Tensor, count: int = 20_000) -> Tensor:
    """Frequency of each id for noise spread evenly over [0, 1)."""
    many = candidates(*[row] * count)
    steps = ((torch.arange(count) + 0.5) / count)[:, None].float()
    ids = many.draw(logits.repeat(count, 1), steps)
    return torch.bincount(ids, minlength=VOCAB).double() / count


@given(SEEDS, st.integers(0, 2**20), st.integers(1, 16))
def test_noise_equals_splitmix64(seed: int, frame: int, groups: int) -> None:
    made = uniform(torch.tensor([seed]), torch.tensor([frame]), groups)[0].tolist()
    assert made == [noise(seed, frame, group, groups) for group in range(groups)]


def test_noise_is_uniform() -> None:
    made = uniform(torch.full((4000,), 7), torch.arange(4000), 16)
    assert 0 <= float(made.min()) < float(made.max()) < 1
    counts = torch.histc(made, 64, 0, 1)
    expected = made.numel() / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 63 degrees of freedom: 0.1% of samples lie above 103.4, 0.1% below 32.
    assert 32 < chi_square < 103.4


def test_noise_of_neighbouring_seeds_and_frames_is_uncorrelated() -> None:
    by_frame = uniform(torch.full((4000,), 7), torch.arange(4000), 16)
    by_seed = uniform(torch.arange(4000), torch.zeros(4000, dtype=torch.long), 16)
    for made in (by_frame, by_seed):
        for a, b in ((made[:-1, 0], made[1:, 0]), (made[:, 0], made[:, 1])):
            assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.05


def test_noise_does_not_depend_on_the_rest_of_the_batch() -> None:
    seeds, frames = torch.tensor([5, -9, 2**62]), torch.tensor([0, 17, 3])
    together = uniform(seeds, frames, 16)
    for row in range(3):
        assert torch.equal(uniform(seeds[row : row + 1], frames[row : row + 1], 16)[0], together[row])


def test_noise_does_not_depend_on_torch_generators() -> None:
    torch.manual_seed(1)
    before = uniform(torch.tensor([3]), torch.tensor([4]), 16)
    torch.manual_seed(2)
    assert torch.equal(uniform(torch.tensor([3]), torch.tensor([4]), 16), before)


def test_noise_differs_between_seeds_and_frames() -> None:
    grid = torch.cartesian_prod(torch.arange(50), torch.arange(50))
    made = uniform(grid[:, 0], grid[:, 1], 16)
    assert len({tuple(row) for row in made.tolist()}) == 2500


def test_greedy_row_takes_the_most_likely_id_for_any_noise() -> None:
    logits = logits_of(8)
    greedy = candidates(*[(0.0, 50, 1.0)] * 8)
    late = greedy.noise(torch.full((8, 1), 0.999))
    assert torch.equal(greedy.draw(logits, late), logits.argmax(-1))


def test_only_greedy_rows_get_zero_noise() -> None:
    mixed = candidates((0.0, 0, 1.0), (0.7, 0, 1.0))
    assert mixed.noise(torch.full((2, 3), 0.5)).tolist() == [[0.0] * 3, [0.5] * 3]


@pytest.mark.parametrize("temperature", [0.3, 0.9, 1.7])
def test_draws_are_distributed_as_softmax(temperature: float) -> None:
    logits = logits_of(1)
    shares = draw_evenly((temperature, 0, 1.0), logits)
    assert torch.allclose(shares, torch.softmax(logits[0].double() / temperature, 0), atol=2e-4)


@pytest.mark.parametrize("top_k", [1, 3, 17])
def test_top_k_keeps_the_best_k_in_proportion(top_k: int) -> None:
    logits = logits_of(1, seed=1)
    shares = draw_evenly((1.0, top_k, 1.0), logits)
    kept = torch.softmax(logits[0], 0).topk(top_k).indices
    expected = torch.zeros(VOCAB, dtype=torch.double)
    expected[kept] = torch.softmax(logits[0, kept].double(), 0)
    assert torch.allclose(shares, expected, atol=2e-4)


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9])
def test_top_p_keeps_the_fewest_candidates_that_reach_it(top_p: float) -> None:
    logits = logits_of(1, seed=2)
    shares = draw_evenly((1.0, 0, top_p), logits)
    order = torch.softmax(logits[0].double(), 0).sort(descending=True)
    count = int((order.values.cumsum(0) < top_p).sum()) + 1
    expected = torch.zeros(VOCAB, dtype=torch.double)
    expected[order.indices[:count]] = order.values[:count] / order.values[:count].sum()
    assert torch.allclose(shares, expected, atol=2e-4)


def test_top_k_of_zero_or_beyond_the_vocabulary_means_all() -> None:
    logits = logits_of(1, seed=3)
    everything = draw_evenly((1.0, 0, 1.0), logits)
    assert torch.equal(draw_evenly((1.0, VOCAB + 100, 1.0), logits), everything)
    assert int((everything > 0).sum()) > 17


OPTIONS = st.tuples(st.sampled_from([0.0, 0.2, 0.9, 2.0]), st.integers(0, 50), st.sampled_from([0.2, 0.8, 1.0]))


@settings(deadline=None)
@given(st.lists(OPTIONS, min_size=1, max_size=8), st.integers(0, 1000))
def test_row_of_a_mixed_batch_draws_as_if_alone(rows: list[tuple[float, int, float]], seed: int) -> None:
    logits = logits_of(len(rows), seed)
    noises = uniform(torch.arange(len(rows)) + seed, torch.zeros(len(rows), dtype=torch.long), 1)
    batch = candidates(*rows)
    together = batch.draw(logits.clone(), batch.noise(noises))
    for n, row in enumerate(rows):
        alone = candidates(row)
        one = alone.draw(logits[n : n + 1].clone(), alone.noise(noises[n : n + 1]))
        assert int(one[0]) == int(together[n])
        expected, margin = choose(logits[n], *row, float(noises[n, 0]))
        assert int(one[0]) == expected or margin < 1e-5


def test_largest_noise_takes_an_allowed_candidate() -> None:
    rows = [(1.0, 3, 1.0), (1.0, 40, 0.3), (1.0, 7, 0.8)]
    logits = logits_of(len(rows))
    ids = candidates(*rows).draw(logits.clone(), torch.full((len(rows), 1), 1 - 2.0**-24))
    for n, (_, top_k, _) in enumerate(rows):
        assert int(ids[n]) in logits[n].topk(top_k).indices.tolist()


def test_masked_ids_are_never_drawn() -> None:
    logits = logits_of(1)
    logits[0, ::2] = -torch.inf
    assert draw_evenly((1.0, 0, 1.0), logits)[::2].sum() == 0


def test_penalty_lowers_positive_and_negative_logits_of_sampled_ids() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, 0.0]])
    seen = torch.tensor([[True, True, False, False, True]])
    assert penalise(logits, seen, torch.tensor([[2.0]])).tolist() == [[1.0, -4.0, 2.0, -2.0, 0.0]]


def test_penalty_is_per_row() -> None:
    logits, seen = torch.ones(3, 2), torch.tensor([[True, False]] * 3)
    made = penalise(logits, seen, torch.tensor([[1.0], [2.0], [4.0]]))
    assert made.tolist() == [[1.0, 1.0], [0.5, 1.0], [0.25, 1.0]]


def test_penalise_does_not_change_its_input() -> None:
    logits = torch.ones(1, 2)
    penalise(logits, torch.tensor([[True, True]]), torch.tensor([[2.0]]))
    assert logits.tolist() == [[1.0, 1.0]]
