"""The tokenizer, used in training alone: log-mel to 16 codes a frame, the first of which carries the phones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .audio import MEL_BINS
from .codebooks import Codebooks
from .sizes import DECODER, PHONES, PHONES_PER_FRAME

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
