"""Sampling of codes: temperature, top-k, top-p and repetition penalty, with noise that is a pure function of the seed.

One uniform number decides each draw, by inversion of the cumulative distribution over the candidates in descending
order. The number is a hash of (seed, frame, group), so a draw is the same in any batch, and before and after a
preemption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """Sampling options of the rows of a batch, for codebook 0 or for the code predictor.

    `inverse_temperature`: float32 [n, 1], 1 for greedy rows; `greedy`: bool [n]; `top_k`: int64 [n, 1], number of
    candidates of each row, or None when every row has `max_top_k`; `top_p`: float32 [n, 1], or None when every row has
    1.
    """

    inverse_temperature: Tensor
    greedy: Tensor
    top_k: Tensor | None
    top_p: Tensor | None
    max_top_k: int

    @classmethod
    def of(cls, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        """From options by row: `temperature` float32 [n] (0 is greedy), `top_k` int64 [n] (0 is all), `top_p` float32
        [n].

        Reads the values on the host, which on a GPU waits for the device; see `on_device`.
        """
        full = cls.on_device(temperature, top_k, top_p, vocab)
        assert full.top_k is not None
        assert full.top_p is not None
        max_top_k = int(full.top_k.max())
        return cls(
            inverse_temperature=full.inverse_temperature,
            greedy=full.greedy,
            top_k=None if bool((full.top_k == max_top_k).all()) else full.top_k,
            top_p=None if bool((full.top_p >= 1).all()) else full.top_p,
            max_top_k=max_top_k,
        )

    @classmethod
    def on_device(cls, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        """As `of`, without reading the values: `top_k` and `top_p` are tensors, and `max_top_k` is `vocab`."""
        greedy = temperature <= 0
        return cls(
            inverse_temperature=(1.0 / torch.where(greedy, 1.0, temperature))[:, None],
            greedy=greedy,
            top_k=torch.where(top_k > 0, top_k, vocab).clamp(max=vocab)[:, None],
            top_p=top_p.contiguous()[:, None],
            max_top_k=vocab,
        )

    def noise(self, uniforms: Tensor) -> Tensor:
        """`uniforms`, float32 [n, g], with zeros in greedy rows: `draw` then takes the most likely candidate."""
        return uniforms.masked_fill(self.greedy[:, None], 0.0)

    def draw(self, logits: Tensor, noise: Tensor) -> Tensor:
        """One id for each row, int64 [n]. `logits`: float32 [n, vocab]; `noise`: float32 [n, 1]."""
        best, ids = torch.topk(logits, self.max_top_k, dim=-1)
        best = best.mul_(self.inverse_temperature)
        if self.top_k is not None:
            best.masked_fill_(torch.arange(self.max_top_k, device=best.device) >= self.top_k, -torch.inf)
        mass = torch.softmax(best, -1).cumsum(-1)
        total = mass[:, -1:]
        if self.top_p is not None:
            # Candidates stay until the mass before them reaches top_p; the first always stays.
            last = (mass < self.top_p * total).sum(-1, keepdim=True).clamp_(max=self.max_top_k - 1)
            total = mass.gather(1, last)
        # For a greedy row noise * total is 0, no cumulative mass is that small, and the first candidate is taken.
        chosen = (mass <= noise * total).sum(-1, keepdim=True)
        return ids.gather(1, chosen.clamp_(max=self.max_top_k - 1))[:, 0]


class Sampler(Protocol):
    """How a step draws codebook 0: `TorchSampler`, or on a GPU `TritonSampler` (`cuda/sampling.py`)."""

    def uniform(self, seed: Tensor, frame: Tensor, groups: int) -> Tensor:
        """As the function `uniform`."""

    def candidates(self, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        """As `Candidates.of`."""

    def draw(self, logits: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """As `Candidates.draw`."""


class TorchSampler:
    """Draws by sorting."""

    def uniform(self, seed: Tensor, frame: Tensor, groups: int) -> Tensor:
        return uniform(seed, frame, groups)

    def candidates(self, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        return Candidates.of(temperature, top_k, top_p, vocab)

    def draw(self, logits: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        return candidates.draw(logits, noise)


def uniform(seed: Tensor, frame: Tensor, groups: int) -> Tensor:
    """Noise of every group of a frame: float32 [n, groups] in [0, 1), multiples of 2^-24.

    `seed`, `frame`: int64 [n]. The hash is two rounds of the SplitMix64 finaliser (Steele, Lea, Flood 2014) over the
    seed and the counter frame * groups + group. The Triton kernels and the tests each have their own SplitMix64: the
    tests compare them.
    """
    counter = frame[:, None] * groups + torch.arange(groups, device=frame.device)
    return ((_splitmix64(_splitmix64(seed)[:, None] + counter) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def _splitmix64(x: Tensor) -> Tensor:
    # int64 multiplication wraps as the hash requires; masks make the arithmetic shifts logical.
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def penalise(logits: Tensor, sampled_before: Tensor, penalty: Tensor) -> Tensor:
    """Repetition penalty (`docs/qwen3_tts.md`, section 6, rule 1), float32 [n, vocab].

    Divides positive logits of ids drawn before by the penalty and multiplies negative ones by it. `logits`: float32
    [n, vocab]; `sampled_before`: bool [n, vocab]; `penalty`: float32 [n, 1].
    """
    return torch.where(sampled_before, torch.where(logits < 0, logits * penalty, logits / penalty), logits)
