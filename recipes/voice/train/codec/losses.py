"""Distances of spectra and of spectral envelopes, for the codec decoder. The discriminators see the same spectra."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..speech.audio import hann, mel_filters

RESOLUTIONS = ((2048, 512, 160), (1024, 256, 100), (512, 128, 64), (256, 64, 40), (128, 32, 20))
"""Window, hop, mel bins."""
_ENVELOPE_FFTS = (1024, 512)
_ENVELOPE_BINS = 32
"""Bands up to `_ENVELOPE_HZ`: broad enough to average random fine structure."""
_ENVELOPE_HZ = 8000.0
_ENVELOPE_FLOOR = 1e-8
"""Power that counts as silence."""
_FLOOR = 1e-4
"""Magnitude in each bin that counts as silence, relative to full scale. With 1e-5, gradients in windows with silence
were twenty times the others', so that one or two windows determined an update."""
_LEADING_SILENCE_SAMPLES = 1024
"""Padding before the audio: windows fade in, so a click at the first samples would not count without it."""


@cache
@torch.inference_mode(False)
def _window(fft: int, device: torch.device) -> Tensor:
    """Window of unit energy, with which the spectrum of white noise has the noise's level."""
    return hann(fft, device) / (0.375 * fft) ** 0.5


def spectra(audio: Tensor) -> list[Tensor]:
    """Complex spectra at each resolution: float [batch, n] -> float [batch, frames, fft / 2 + 1, 2] each."""
    padded = F.pad(audio.float(), (_LEADING_SILENCE_SAMPLES, 0))
    found = []
    for fft, hop, _ in RESOLUTIONS:
        spectrum = torch.stft(padded, fft, hop, fft, _window(fft, audio.device), center=False, return_complex=True)
        found.append(torch.view_as_real(spectrum).transpose(1, 2))
    return found


class SpectralLosses(nn.Module):
    """Distances of `spectra`: of mel magnitudes, in decades, and of envelopes.

    The first is the mean absolute distance at all resolutions. The second is that of the power in broad bands, which
    carries intelligibility, and which random fine structure masks in the first; its squared term emphasises large
    errors.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._mel = [mel_filters(fft, bins, 12_000.0, device).t() for fft, _, bins in RESOLUTIONS]
        self._bands = [
            mel_filters(fft, _ENVELOPE_BINS, _ENVELOPE_HZ, device).t() if fft in _ENVELOPE_FFTS else None
            for fft, _, _ in RESOLUTIONS
        ]

    def forward(self, made: list[Tensor], real: list[Tensor]) -> tuple[Tensor, Tensor]:
        spectral, envelope = made[0].new_zeros(()), made[0].new_zeros(())
        for made_one, real_one, mel, bands in zip(made, real, self._mel, self._bands, strict=True):
            made_power, real_power = (one.square().sum(-1) for one in (made_one, real_one))
            made_mel, real_mel = (((p + 1e-12).sqrt() @ mel + _FLOOR).log10() for p in (made_power, real_power))
            spectral = spectral + (made_mel - real_mel).abs().mean()
            if bands is not None:
                made_bands, real_bands = (
                    0.5 * torch.log10(0.375 * (p @ bands) + _ENVELOPE_FLOOR) for p in (made_power, real_power)
                )
                error = made_bands - real_bands
                envelope = envelope + error.abs().mean() + error.square().mean()
        return spectral / len(RESOLUTIONS), envelope / len(_ENVELOPE_FFTS)
