"""`TritonSampler` against `TorchSampler`: draws and noise."""

from __future__ import annotations

import pytest
import torch
from voxgate.pipeline.talker.cuda.sampling import TritonSampler
from voxgate.pipeline.talker.reference.sampling import Candidates, uniform

ROWS = 6


@pytest.mark.parametrize("vocab", [16, 21])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.9, 5, 1.0), (1.0, 0, 1.0), (0.7, 8, 0.9), (1.0, 0, 0.8), (0.0, 5, 1.0)]
)
def test_draws_equal_those_of_sorted_candidates(
    device: torch.device, vocab: int, temperature: float, top_k: int, top_p: float
) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(ROWS, vocab, generator=generator)
    candidates = Candidates.of(
        torch.full((ROWS,), temperature), torch.full((ROWS,), top_k), torch.full((ROWS,), top_p), vocab
    )
    noise = candidates.noise(torch.rand(ROWS, 1, generator=generator))
    sampler = TritonSampler()
    on_device = sampler.candidates(
        torch.full((ROWS,), temperature, device=device),
        torch.full((ROWS,), top_k, device=device),
        torch.full((ROWS,), top_p, device=device),
        vocab,
    )
    drawn = sampler.draw(logits.to(device), on_device, noise.to(device))
    assert drawn.tolist() == candidates.draw(logits.clone(), noise).tolist()


def test_impossible_ids_are_never_drawn(device: torch.device) -> None:
    logits = torch.full((ROWS, 10), -torch.inf)
    logits[:, 3] = 1.0
    sampler, ones = TritonSampler(), torch.ones(ROWS, device=device)
    noise = torch.linspace(0, 0.999, ROWS, device=device)[:, None]
    candidates = sampler.candidates(ones, torch.zeros(ROWS, dtype=torch.int64, device=device), ones, 10)
    assert sampler.draw(logits.to(device), candidates, noise.contiguous()).tolist() == [3] * ROWS


def test_noise_is_equal_to_the_bit(device: torch.device) -> None:
    seeds = torch.tensor([0, 1, -5, 2**62, 123456789])
    frames = torch.tensor([0, 7, 100, 8000, 3])
    assert torch.equal(
        TritonSampler().uniform(seeds.to(device), frames.to(device), 16).cpu(), uniform(seeds, frames, 16)
    )
