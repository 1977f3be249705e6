"""The tokenizer: log mel spectrograms to 16 codes per frame, the first of which identifies the phones.

Used in training only. The first codebook quantises one projection of the latent, the other fifteen are residual
codebooks of another (as RVQ-VAE with a semantic first codebook; Défossez et al., "Moshi", 2024). Codebooks are learnt
as moving averages of the frames assigned to them, not by the optimizer (van den Oord et al., VQ-VAE, 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import CODEBOOK_SIZE, CODEBOOKS, DECODER, PHONES, PHONES_PER_FRAME
from ..speech.audio import MEL_BINS

_DEAD_BELOW = 0.3
"""An entry with fewer frames per update than this, on average, is replaced by a random frame."""
_COMMITMENT_LEVELS = (1, 3, 7, CODEBOOKS - 1)


class Codebooks(nn.Module):
    """entries: float [16, 512, width], with moving averages of the count and sum of the frames assigned to each."""

    entries: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("entries", torch.randn(CODEBOOKS, CODEBOOK_SIZE, width) * 0.1)
        self.register_buffer("counts", torch.ones(CODEBOOKS, CODEBOOK_SIZE), persistent=False)
        self.register_buffer("sums", self.entries.clone(), persistent=False)

    def _nearest(self, x: Tensor, level: int, norms: Tensor) -> Tensor:
        return torch.addmm(-0.5 * norms[level], x, self.entries[level].t()).argmax(-1)

    def _quantise(self, first: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """float [n, width] each -> codes [16, n], and the input of each codebook [16, n, width]."""
        norms = self.entries.square().sum(-1)
        codes, residuals = [self._nearest(first, 0, norms)], [first]
        for level in range(1, CODEBOOKS):
            codes.append(self._nearest(rest, level, norms))
            residuals.append(rest)
            rest = rest - F.embedding(codes[-1], self.entries[level])
        return torch.stack(codes), torch.stack(residuals)

    @torch.no_grad()
    def encode(self, first: Tensor, rest: Tensor) -> Tensor:
        """Inputs of the first and the residual codebooks, float [batch, T, width] each -> int64 [batch, T, 16]."""
        codes, _ = self._quantise(first.flatten(0, 1), rest.flatten(0, 1))
        return codes.t().unflatten(0, first.shape[:2])

    def forward(self, first: Tensor, rest: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Quantise with a straight-through gradient.

        Returns both inputs quantised, the commitment loss, the codes, and the input of each codebook.

        In training, half of the batch uses only the first residual codebooks, so that these carry most information.
        """
        with torch.no_grad():
            codes, residuals = self._quantise(first.flatten(0, 1), rest.flatten(0, 1))
        first_quantised = F.embedding(codes[0], self.entries[0]).view_as(first)
        commitment = F.mse_loss(first, first_quantised)
        for level in _COMMITMENT_LEVELS:
            after = residuals[level] - F.embedding(codes[level], self.entries[level])
            commitment = commitment + 0.5 * F.mse_loss(rest, rest.detach() - after.view_as(rest))
        quantised_steps = residuals[1:] - torch.cat(
            [residuals[2:], (residuals[-1] - F.embedding(codes[-1], self.entries[-1]))[None]]
        )
        quantised_steps = quantised_steps.unflatten(1, first.shape[:2])
        if self.training:
            batch, device = first.shape[0], first.device
            partial = torch.randint(2, CODEBOOKS, (batch,), device=device)
            levels = torch.where(torch.rand(batch, device=device) < 0.5, partial, CODEBOOKS)
            kept = levels[None] > torch.arange(1, CODEBOOKS, device=device)[:, None]
            quantised_steps = quantised_steps * kept[..., None, None]
        summed = quantised_steps.sum(0)
        return first + (first_quantised - first).detach(), rest + (summed - rest).detach(), commitment, codes, residuals

    @torch.no_grad()
    def learn(self, codes: Tensor, residuals: Tensor, decay: float) -> None:
        """Move each entry towards the mean of its frames. codes: [16, n]; residuals: codebook inputs [16, n, width]."""
        rows = (codes + torch.arange(CODEBOOKS, device=codes.device)[:, None] * CODEBOOK_SIZE).flatten()
        sums = torch.zeros_like(self.sums).view(-1, self.sums.shape[-1]).index_add_(0, rows, residuals.flatten(0, 1))
        counts = torch.zeros_like(self.counts).view(-1).index_add_(0, rows, torch.ones_like(rows, dtype=sums.dtype))
        self.sums.lerp_(sums.view_as(self.sums), 1 - decay)
        self.counts.lerp_(counts.view_as(self.counts), 1 - decay)
        self.entries.copy_(self.sums / self.counts.clamp(min=1e-3)[..., None])

    @torch.no_grad()
    def revive(self, residuals: Tensor) -> int:
        """Replace unused entries by random frames; returns their number."""
        dead = self.counts < _DEAD_BELOW
        drawn = torch.randint(residuals.shape[1], dead.shape, device=residuals.device)
        places = residuals.gather(1, drawn[..., None].expand(-1, -1, residuals.shape[-1]))
        self.entries.copy_(torch.where(dead[..., None], places, self.entries))
        self.counts.masked_fill_(dead, 2 * _DEAD_BELOW)
        self.sums.copy_(torch.where(dead[..., None], places * (2 * _DEAD_BELOW), self.sums))
        return int(dead.sum())

    @torch.no_grad()
    def initialise(self, first: Tensor, rest: Tensor) -> None:
        """Initialise each codebook by k-means. float [n, width] each, with n at least the size of a codebook."""
        self._cluster(0, first)
        for level in range(1, CODEBOOKS):
            self._cluster(level, rest)
            norms = self.entries.square().sum(-1)
            rest = rest - F.embedding(self._nearest(rest, level, norms), self.entries[level])

    def _cluster(self, level: int, x: Tensor, rounds: int = 12) -> None:
        self.entries[level] = x[torch.randperm(x.shape[0], device=x.device)[:CODEBOOK_SIZE]]
        counts = torch.ones(CODEBOOK_SIZE, device=x.device)
        for _ in range(rounds):
            nearest = self._nearest(x, level, self.entries.square().sum(-1))
            counts = torch.bincount(nearest, minlength=CODEBOOK_SIZE).to(x.dtype)
            sums = torch.zeros_like(self.entries[level]).index_add_(0, nearest, x)
            others = x[torch.randint(x.shape[0], (CODEBOOK_SIZE,), device=x.device)]
            self.entries[level] = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], others)
        self.counts[level] = counts.clamp(min=1)
        self.sums[level] = self.entries[level] * self.counts[level][:, None]


_MEL_MEAN, _MEL_SCALE = -2.5, 1.2


class MixingBlock(nn.Module):
    """A depthwise convolution and a perceptron of two layers, with a residual."""

    def __init__(self, width: int, kernel: int, causal: bool = False) -> None:
        super().__init__()
        self.padding = (kernel - 1, 0) if causal else (kernel // 2, kernel // 2)
        self.across_time = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.across_time(F.pad(x, self.padding)).transpose(1, 2)
        return x + self.narrow(F.gelu(self.widen(self.norm(y)))).transpose(1, 2)


def _encoder(width: int, latent: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(MEL_BINS, width, 3, padding=1),
        MixingBlock(width, 5),
        nn.Conv1d(width, width, 2, 2),
        MixingBlock(width, 3),
        nn.Conv1d(width, 384, 2, 2),
        MixingBlock(384, 3),
        nn.Conv1d(384, 512, 2, 2),
        MixingBlock(512, 3),
        MixingBlock(512, 3),
        nn.Conv1d(512, latent, 1),
    )


def _mel_decoder(width: int, latent: int) -> nn.Sequential:
    """Causal as the real decoder is, so that the codes hold nothing it could not use in time."""
    return nn.Sequential(
        nn.ConstantPad1d((2, 0), 0.0),
        nn.Conv1d(latent, 512, 3),
        MixingBlock(512, 3, causal=True),
        MixingBlock(512, 3, causal=True),
        nn.ConvTranspose1d(512, 384, 2, 2),
        MixingBlock(384, 3, causal=True),
        nn.ConvTranspose1d(384, width, 2, 2),
        MixingBlock(width, 5, causal=True),
        nn.ConvTranspose1d(width, width, 2, 2),
        MixingBlock(width, 5, causal=True),
        nn.Conv1d(width, MEL_BINS, 1),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Reconstruction:
    """Output of the tokenizer in training.

    mel: [batch, bins, 8 T]; phone_logits: [batch, T, 4, phones]; commitment: scalar. codes [16, n] and residuals
    [16, n, width] are the arguments of `Codebooks.learn`, None without quantisation.
    """

    mel: Tensor
    phone_logits: Tensor
    commitment: Tensor
    codes: Tensor | None
    residuals: Tensor | None


class MelTokenizer(nn.Module):
    """Encoder and codebooks; in training also a decoder to mel spectrograms and a phone classifier."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        latent = DECODER.codebook_dim
        inner = latent // 2
        self.encoder = _encoder(width, latent)
        self.norm = nn.LayerNorm(latent, elementwise_affine=False)
        self.in_first, self.in_rest = (nn.Linear(latent, inner, bias=False) for _ in range(2))
        self.out_first, self.out_rest = (nn.Linear(inner, latent, bias=False) for _ in range(2))
        self.codebooks = Codebooks(inner)
        self.mel_decoder = _mel_decoder(width, latent)
        self.phone_head = nn.Linear(latent, PHONES_PER_FRAME * PHONES)

    def latent(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        """[batch, bins, 8 T] -> inputs of the first and the residual codebooks, float32 [batch, T, inner] each."""
        x = self.norm(self.encoder((mel - _MEL_MEAN) / _MEL_SCALE).transpose(1, 2)).float()
        with torch.autocast(mel.device.type, enabled=False):
            return self.in_first(x), self.in_rest(x)

    @torch.no_grad()
    def encode(self, mel: Tensor) -> Tensor:
        """Log mel spectrogram [batch, bins, 8 T] -> codes, int64 [batch, T, 16]."""
        first, rest = self.latent(mel)
        return self.codebooks.encode(first, rest)

    def forward(self, mel: Tensor, quantise: bool) -> Reconstruction:
        """Encode and reconstruct a log mel spectrogram [batch, bins, 8 T]."""
        return self.reconstruct(*self.latent(mel), quantise)

    def reconstruct(self, first: Tensor, rest: Tensor, quantise: bool) -> Reconstruction:
        """Reconstruct the spectrogram from `latent`'s output."""
        with torch.autocast(first.device.type, enabled=False):  # bfloat16 is too coarse for distances between entries
            commitment, codes, residuals = first.new_zeros(()), None, None
            if quantise:
                first, rest, commitment, codes, residuals = self.codebooks(first, rest)
            first_quantised = self.out_first(first)
            latent = (first_quantised + self.out_rest(rest)).transpose(1, 2)
        logits = self.phone_head(first_quantised).unflatten(-1, (PHONES_PER_FRAME, PHONES))
        return Reconstruction(self.mel_decoder(latent) * _MEL_SCALE + _MEL_MEAN, logits, commitment, codes, residuals)

    def frozen_state(self) -> dict[str, Tensor]:
        """Weights that later steps need: all but the mel decoder."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("mel_decoder.")}
