"""The mel spectrogram that the speaker encoder listens to."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

WINDOW = 1024
HOP = 256
BINS = 128
RATE_HZ = 24_000
FLOOR = 1e-5
LEAST_SAMPLES = (WINDOW - HOP) // 2 + 1
"""Reflection at the edges needs more samples than it adds."""


def log_mel(pcm: Tensor) -> Tensor:
    """Log mel spectrogram (spec section F.2): float32 [n] at 24 kHz, n >= 385 -> float32 [n // 256, 128]."""
    edge = (WINDOW - HOP) // 2
    padded = pad(pcm[None, None], (edge, edge), mode="reflect")[0, 0]
    spectrum = torch.stft(padded, WINDOW, HOP, window=torch.hann_window(WINDOW), center=False, return_complex=True)
    magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-9)
    return (mel_filters() @ magnitude).clamp(min=FLOOR).log().t()


@cache
def mel_filters() -> Tensor:
    """Triangles of equal area, evenly spaced on Slaney's mel scale from 0 to 12 kHz: float32 [128, 513]."""
    frequencies_hz = np.linspace(0, RATE_HZ / 2, WINDOW // 2 + 1)
    corners_hz = _mel_to_hz(np.linspace(0, _hz_to_mel(RATE_HZ / 2), BINS + 2))
    left, centre, right = corners_hz[:-2, None], corners_hz[1:-1, None], corners_hz[2:, None]
    rising = (frequencies_hz - left) / (centre - left)
    falling = (right - frequencies_hz) / (right - centre)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy((triangles * 2 / (right - left)).astype(np.float32))


# Slaney's scale: linear up to 1 kHz, which is mel 15, logarithmic above.
_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    """For frequencies in the logarithmic part."""
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) / _LOG_STEP)


def _mel_to_hz(mel: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ_PER_MEL, above)
