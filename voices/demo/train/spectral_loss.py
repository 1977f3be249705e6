"""How far two recordings are apart: log-mel spectra from long and short windows."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from .audio import log_mel

_RESOLUTIONS = ((2048, 512, 160), (1024, 256, 100), (512, 128, 64), (256, 64, 40), (128, 32, 20))
"""Window, hop, mel bins."""
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
