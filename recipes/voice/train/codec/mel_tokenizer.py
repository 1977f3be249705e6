"""Sixteen codebooks: the first by itself, fifteen residual ones; learnt as running means, outside the optimizer."""
# TODO-DOC The tokenizer, used in training alone: log-mel to 16 codes a frame, the first of which carries the phones.

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import CODEBOOK_SIZE, CODEBOOKS, DECODER, PHONES, PHONES_PER_FRAME
from ..speech.audio import MEL_BINS

_DEAD_BELOW = 0.3
"""An entry that wins fewer frames a step than this is moved to where there are frames."""
_COMMITMENT_LEVELS = (1, 3, 7, CODEBOOKS - 1)


class Codebooks(nn.Module):
    """entries: float [16, 512, width], kept with the running count and sum of the frames each one won."""

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

    def _walk(self, first: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """float [n, width] each -> codes [16, n], and before each codebook what it had to say: [16, n, width]."""
        norms = self.entries.square().sum(-1)
        codes, heard = [self._nearest(first, 0, norms)], [first]
        for level in range(1, CODEBOOKS):
            codes.append(self._nearest(rest, level, norms))
            heard.append(rest)
            rest = rest - F.embedding(codes[-1], self.entries[level])
        return torch.stack(codes), torch.stack(heard)

    @torch.no_grad()
    def encode(self, first: Tensor, rest: Tensor) -> Tensor:
        """float [batch, T, width] each -> int64 [batch, T, 16]."""
        codes, _ = self._walk(first.flatten(0, 1), rest.flatten(0, 1))
        return codes.t().unflatten(0, first.shape[:2])

    def forward(self, first: Tensor, rest: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Quantised versions that gradients pass straight through, the commitment loss, codes and residuals.

        In training, half of the batch keeps only some of the residual codebooks, so that the early ones say most.
        """
        with torch.no_grad():
            codes, heard = self._walk(first.flatten(0, 1), rest.flatten(0, 1))
        spoken = F.embedding(codes[0], self.entries[0]).view_as(first)
        commitment = F.mse_loss(first, spoken)
        for level in _COMMITMENT_LEVELS:
            after = heard[level] - F.embedding(codes[level], self.entries[level])
            commitment = commitment + 0.5 * F.mse_loss(rest, rest.detach() - after.view_as(rest))
        said = heard[1:] - torch.cat([heard[2:], (heard[-1] - F.embedding(codes[-1], self.entries[-1]))[None]])
        said = said.unflatten(1, first.shape[:2])
        if self.training:
            batch, device = first.shape[0], first.device
            partial = torch.randint(2, CODEBOOKS, (batch,), device=device)
            levels = torch.where(torch.rand(batch, device=device) < 0.5, partial, CODEBOOKS)
            kept = levels[None] > torch.arange(1, CODEBOOKS, device=device)[:, None]
            said = said * kept[..., None, None]
        summed = said.sum(0)
        return first + (spoken - first).detach(), rest + (summed - rest).detach(), commitment, codes, heard

    @torch.no_grad()
    def learn(self, codes: Tensor, heard: Tensor, decay: float) -> None:
        """Move every entry towards the mean of the frames it won. codes: [16, n]; heard: [16, n, width]."""
        rows = (codes + torch.arange(CODEBOOKS, device=codes.device)[:, None] * CODEBOOK_SIZE).flatten()
        sums = torch.zeros_like(self.sums).view(-1, self.sums.shape[-1]).index_add_(0, rows, heard.flatten(0, 1))
        counts = torch.zeros_like(self.counts).view(-1).index_add_(0, rows, torch.ones_like(rows, dtype=sums.dtype))
        self.sums.lerp_(sums.view_as(self.sums), 1 - decay)
        self.counts.lerp_(counts.view_as(self.counts), 1 - decay)
        self.entries.copy_(self.sums / self.counts.clamp(min=1e-3)[..., None])

    @torch.no_grad()
    def revive(self, heard: Tensor) -> int:
        """Give entries that hardly win a frame's place to sit in; how many there were."""
        dead = self.counts < _DEAD_BELOW
        drawn = torch.randint(heard.shape[1], dead.shape, device=heard.device)
        places = heard.gather(1, drawn[..., None].expand(-1, -1, heard.shape[-1]))
        self.entries.copy_(torch.where(dead[..., None], places, self.entries))
        self.counts.masked_fill_(dead, 2 * _DEAD_BELOW)
        self.sums.copy_(torch.where(dead[..., None], places * (2 * _DEAD_BELOW), self.sums))
        return int(dead.sum())

    @torch.no_grad()
    def initialise(self, first: Tensor, rest: Tensor) -> None:
        """k-means on each level in turn. float [n, width] each, n at least the codebook's size."""
        self._cluster(0, first)
        for level in range(1, CODEBOOKS):
            self._cluster(level, rest)
            norms = self.entries.square().sum(-1)
            rest = rest - F.embedding(self._nearest(rest, level, norms), self.entries[level])

    def _cluster(self, level: int, x: Tensor, rounds: int = 12) -> None:
        self.entries[level] = x[torch.randperm(x.shape[0], device=x.device)[:CODEBOOK_SIZE]]
        counts = torch.ones(CODEBOOK_SIZE, device=x.device)
        for _ in range(rounds):
            won = self._nearest(x, level, self.entries.square().sum(-1))
            counts = torch.bincount(won, minlength=CODEBOOK_SIZE).to(x.dtype)
            sums = torch.zeros_like(self.entries[level]).index_add_(0, won, x)
            others = x[torch.randint(x.shape[0], (CODEBOOK_SIZE,), device=x.device)]
            self.entries[level] = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], others)
        self.counts[level] = counts.clamp(min=1)
        self.sums[level] = self.entries[level] * self.counts[level][:, None]


_MEL_MEAN, _MEL_SCALE = -2.5, 1.2


class MixingBlock(nn.Module):
    """A depthwise convolution and a two-layer perceptron, added to what came in."""

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
    """mel: [batch, bins, 8 T]; phone_logits: [batch, T, 4, phones]; commitment: a scalar; usage: what to learn from."""

    mel: Tensor
    phone_logits: Tensor
    commitment: Tensor
    codes: Tensor | None
    residuals: Tensor | None


class MelTokenizer(nn.Module):
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
        """[batch, bins, 8 T] -> what the first codebook sees and what the rest see, float32 [batch, T, inner]."""
        x = self.norm(self.encoder((mel - _MEL_MEAN) / _MEL_SCALE).transpose(1, 2)).float()
        with torch.autocast(mel.device.type, enabled=False):
            return self.in_first(x), self.in_rest(x)

    @torch.no_grad()
    def encode(self, mel: Tensor) -> Tensor:
        """[batch, bins, 8 T] -> int64 [batch, T, 16]."""
        first, rest = self.latent(mel)
        return self.codebooks.encode(first, rest)

    def forward(self, mel: Tensor, quantise: bool) -> Reconstruction:
        first, rest = self.latent(mel)
        with torch.autocast(mel.device.type, enabled=False):  # codebook arithmetic goes wrong in bfloat16
            commitment, codes, residuals = mel.new_zeros(()), None, None
            if quantise:
                first, rest, commitment, codes, residuals = self.codebooks(first, rest)
            spoken = self.out_first(first)
            latent = (spoken + self.out_rest(rest)).transpose(1, 2)
        logits = self.phone_head(spoken).unflatten(-1, (PHONES_PER_FRAME, PHONES))
        return Reconstruction(self.mel_decoder(latent) * _MEL_SCALE + _MEL_MEAN, logits, commitment, codes, residuals)

    def frozen_state(self) -> dict[str, Tensor]:
        """What later steps need: encoder, projections, codebooks and phone head."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("mel_decoder.")}
