"""The source voices of the demo voice, flite's, resampled to 24 kHz."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from train.speech.flite import RATE_HZ as FLITE_HZ
from train.speech.flite import VOICES, Flite
from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from .sound import resampled

__all__ = ["VOICES", "read"]

_readers: dict[str, Flite] = {}


def read(voice: str, spoken: str) -> NDArray[np.float32]:
    """Flite's reading of a text in its spoken form, float32 [n] at 24 kHz. Raises OSError without its libraries."""
    if voice not in _readers:
        _readers[voice] = Flite(voice)
    samples = _readers[voice].read(spoken).samples
    return resampled(samples.astype(np.float32) / np.float32(32768), FLITE_HZ, SAMPLE_RATE_HZ)
