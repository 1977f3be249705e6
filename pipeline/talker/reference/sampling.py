"""Drawing codes: temperature, top-k, top-p and repetition penalty, with noise that depends on nothing but the seed.

One uniform number decides each draw, by inversion over the candidates in descending order. It is a hash of (seed,
frame, group), so a draw is the same in any batch, at any time, before and after a preemption.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def uniform(seed: Tensor, frame: Tensor, groups: int) -> Tensor:
    """Noise of every group of a frame: float32 [n, groups] in [0, 1), multiples of 2^-24.

    `seed`, `frame`: int64 [n]. The hash is two rounds of the SplitMix64 finaliser (Steele, Lea, Flood 2014) over the
    seed and the counter frame * groups + group.
    """
    if seed.is_cuda:
        # One kernel instead of some thirty; its compiler is there only where there is a GPU.
        from ..cuda.sampling_kernels import uniform_rows

        return uniform_rows(seed, frame, groups)
    counter = frame[:, None] * groups + torch.arange(groups, device=frame.device)
    return ((_splitmix64(_splitmix64(seed)[:, None] + counter) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def _splitmix64(x: Tensor) -> Tensor:
    # int64 multiplication wraps, which is what the hash wants; the shifts must be made logical by masking.
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return x ^ ((x >> 31) & ((1 << 33) - 1))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Sampling options of a batch's rows, for one of the two samplers.

    `inverse_temperature`: float32 [n, 1], 1 for greedy rows; `greedy`: bool [n]; `limit`: int64 [n, 1], candidates a
    row may draw from; `top_p`: float32 [n, 1] or None when every row has 1; `most`: largest limit of the batch.
    """

    inverse_temperature: Tensor
    greedy: Tensor
    limit: Tensor | None
    top_p: Tensor | None
    most: int

    @classmethod
    def of(cls, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        """From per-row options, float32 [n], int64 [n] (0 means all) and float32 [n]."""
        greedy = temperature <= 0
        limit = torch.where(top_k > 0, top_k, vocab).clamp(max=vocab)
        inverse_temperature = (1.0 / torch.where(greedy, 1.0, temperature))[:, None]
        if temperature.is_cuda:
            # Looking at the values would wait for the device, and its kernels gain nothing by it.
            return cls(inverse_temperature, greedy, limit[:, None], top_p.contiguous()[:, None], vocab)
        most = int(limit.max())
        return cls(
            inverse_temperature=inverse_temperature,
            greedy=greedy,
            limit=None if bool((limit == most).all()) else limit[:, None],
            top_p=None if bool((top_p >= 1).all()) else top_p[:, None],
            most=most,
        )

    def noise(self, uniforms: Tensor) -> Tensor:
        """Zero where a row is greedy, which makes `draw` take its best candidate; uniforms: float32 [n, g]."""
        return uniforms.masked_fill(self.greedy[:, None], 0.0)

    def draw(self, logits: Tensor, noise: Tensor) -> Tensor:
        """One id per row, int64 [n]. `logits`: float32 [n, vocab]; `noise`: float32 [n, 1]."""
        if logits.is_cuda:
            from ..cuda.sampling_kernels import draw_rows

            assert self.limit is not None
            assert self.top_p is not None
            return draw_rows(logits, self.inverse_temperature, self.limit, self.top_p, noise)
        best, ids = torch.topk(logits, self.most, dim=-1)
        best = best.mul_(self.inverse_temperature)
        if self.limit is not None:
            best.masked_fill_(torch.arange(self.most, device=best.device) >= self.limit, -torch.inf)
        mass = torch.softmax(best, -1).cumsum(-1)
        total = mass[:, -1:]
        if self.top_p is not None:
            # Candidates stay until the mass before them reaches top_p; the first always stays.
            kept = (mass < self.top_p * total).sum(-1, keepdim=True).clamp_(max=self.most - 1)
            total = mass.gather(1, kept)
        chosen = (mass <= noise * total).sum(-1, keepdim=True)
        # A greedy row's noise is 0: no mass lies at or below it, so the first candidate is taken.
        return ids.gather(1, chosen.clamp_(max=self.most - 1))[:, 0]


def penalise(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Repetition penalty on every id drawn before (section B.5): negative logits times r, others divided by it.

    `logits`: float32 [n, vocab]; `seen`: bool [n, vocab]; `penalty`: float32 [n, 1].
    """
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)
