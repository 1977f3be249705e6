"""How far two recordings are apart: log-mel spectra from long and short windows, and the envelopes over them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .audio import hann, log_mel, mel_filters

_RESOLUTIONS = ((2048, 512, 160), (1024, 256, 100), (512, 128, 64), (256, 64, 40), (128, 32, 20))
"""Window, hop, mel bins."""
_ENVELOPES = ((1024, 240, 32), (512, 120, 32))
"""Window, hop, mel bins as far as `_ENVELOPE_HZ`: broad enough to even out what is chance."""
_ENVELOPE_HZ = 8000.0
_ENVELOPE_FLOOR = 1e-8
"""Power that is as good as silence."""
_BEFORE = 1024
"""Samples of silence put before each: a window fades in, and a click on the very first samples would go unheard."""


def spectral_loss(made: Tensor, real: Tensor) -> Tensor:
    """float [batch, n] each -> the mean distance in powers of ten."""
    made, real = F.pad(made, (_BEFORE, 0)), F.pad(real, (_BEFORE, 0))
    total = made.new_zeros(())
    for fft, hop, bins in _RESOLUTIONS:
        ours, theirs = (log_mel(audio, fft, hop, bins, 12_000.0, 1e-5) for audio in (made, real))
        total = total + (ours - theirs).abs().mean()
    return total / len(_RESOLUTIONS)


def envelope_loss(made: Tensor, real: Tensor) -> Tensor:
    """float [batch, n] each -> how far power in broad bands is off, by which speech is understood.

    Fine structure, which is half chance, hides it in `spectral_loss`. The square makes large errors count.
    """
    made, real = F.pad(made, (_BEFORE, 0)), F.pad(real, (_BEFORE, 0))
    total = made.new_zeros(())
    for fft, hop, bins in _ENVELOPES:
        error = _envelope(made, fft, hop, bins) - _envelope(real, fft, hop, bins)
        total = total + error.abs().mean() + error.square().mean()
    return total / len(_ENVELOPES)


def _envelope(audio: Tensor, fft: int, hop: int, bins: int) -> Tensor:
    """float [batch, n] -> float [batch, bins, frames], base-10 logarithm of the magnitude."""
    spectrum = torch.stft(audio, fft, hop, fft, hann(fft, audio.device), center=False, return_complex=True)
    power = torch.view_as_real(spectrum).square().sum(-1) / fft
    return 0.5 * torch.log10(mel_filters(fft, bins, _ENVELOPE_HZ, audio.device) @ power + _ENVELOPE_FLOOR)
