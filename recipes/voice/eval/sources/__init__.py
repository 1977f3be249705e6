"""The source voices, which a voice imitates: flite's and hibari's, at 24 kHz."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from train.speech import hibari
from train.speech.synthesis import GAIN, sentence
from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from ..sound import resampled
from . import flite

VOICES = (hibari.VOICE, *flite.VOICES)


def read(voice: str, spoken: str) -> NDArray[np.float32]:
    """The source's reading of a text in its spoken form, float32 [n]. Raises OSError without its files."""
    if voice in flite.VOICES:
        samples = _flite(voice).read(spoken)
        return resampled(samples.astype(np.float32) / np.float32(32768), flite.RATE_HZ, SAMPLE_RATE_HZ)
    # hibari reads one sentence at a time, with more silence around it than speech has.
    parts = [sentence(_hibari().read(part), GAIN).samples for part in re.split(r"(?<=[.?!])\s+", spoken)]
    return np.concatenate(parts).astype(np.float32) / np.float32(32768)


@cache
def _flite(voice: str) -> flite.Flite:
    return flite.Flite(voice)


@cache
def _hibari() -> hibari.Hibari:
    """From the folder $HIBARI, into which the package is downloaded if it is not there."""
    return hibari.Hibari(hibari.unpacked(Path(os.environ["HIBARI"])))
