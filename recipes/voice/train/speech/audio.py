"""Log mel spectrograms on the training device."""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..sizes import SAMPLE_RATE_HZ

MEL_HOP = 240
"""Hop of the tokenizer's mel spectrogram in samples: 10 ms, eight per codec frame."""
MEL_BINS = 100

# Cached tensors must not be inference tensors, which cannot take part in training later.


@cache
@torch.inference_mode(False)
def mel_filters(fft: int, bins: int, top_hz: float, device: torch.device) -> Tensor:
    """Triangular filters on the mel scale up to `top_hz`, each of sum 1: float32 [bins, fft / 2 + 1]."""
    top_mel = 2595 * math.log10(1 + top_hz / 700)
    corners = 700 * (10 ** (torch.linspace(0, top_mel, bins + 2, dtype=torch.float64) / 2595) - 1)
    hz = torch.linspace(0, SAMPLE_RATE_HZ / 2, fft // 2 + 1, dtype=torch.float64)
    rising = (hz[None] - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    falling = (corners[2:, None] - hz[None]) / (corners[2:] - corners[1:-1])[:, None]
    filters = torch.minimum(rising, falling).clamp(min=0)
    return (filters / filters.sum(1, keepdim=True).clamp(min=1e-8)).float().to(device)


@cache
@torch.inference_mode(False)
def hann(fft: int, device: torch.device) -> Tensor:
    """Hann window of `fft` samples."""
    return torch.hann_window(fft, device=device)


def log_mel(audio: Tensor, fft: int, hop: int, bins: int, top_hz: float, floor: float) -> Tensor:
    """Base-10 logarithm of mel magnitudes, at least `floor`: float [batch, n] -> float [batch, bins, frames]."""
    spectrum = torch.stft(audio, fft, hop, fft, hann(fft, audio.device), center=False, return_complex=True).abs()
    return torch.log10((mel_filters(fft, bins, top_hz, audio.device) @ spectrum).clamp(min=floor))


def tokenizer_mel(audio: Tensor) -> Tensor:
    """The tokenizer's input: [batch, n] -> [batch, MEL_BINS, n / MEL_HOP], each frame centred on its samples."""
    fft = 1024
    margin = (fft - MEL_HOP) // 2
    return log_mel(F.pad(audio, (margin, margin)), fft, MEL_HOP, MEL_BINS, 12_000.0, 1e-4)
