"""Extent of speech in audio: beginning, end and pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm
from voxgate.codecs.resample import Resampler
from voxgate.pipeline.silence import QUIET_RMS

_WINDOW = SAMPLE_RATE_HZ // 100
PAUSE_S = 0.15
"""Shorter silences belong to words; the closure of a stop lasts about 0.1 s."""


@dataclass(frozen=True, slots=True)
class SpeechExtent:
    """Durations: silence before the first sound, from the first to the last sound, and pauses within."""

    leading_silence_s: float
    speech_s: float
    pauses_s: float


def speech_extent(pcm: Pcm) -> SpeechExtent:
    """Measure float32 [n] at 24 kHz in windows of 10 ms; audio without speech is all leading silence.

    A single window above silence is a click, not speech.
    """
    count = len(pcm) // _WINDOW
    windows = pcm[: count * _WINDOW].astype(np.float64).reshape(count, _WINDOW)
    over = np.pad(np.sqrt(np.mean(windows**2, axis=1)) >= QUIET_RMS, 1)
    loud = np.flatnonzero(over[1:-1] & (over[:-2] | over[2:]))
    if not len(loud):
        return SpeechExtent(count / 100, 0.0, 0.0)
    gaps_s = (np.diff(loud) - 1) / 100
    return SpeechExtent(
        leading_silence_s=float(loud[0]) / 100,
        speech_s=float(loud[-1] + 1 - loud[0]) / 100,
        pauses_s=float(gaps_s[gaps_s >= PAUSE_S].sum()),
    )


def resampled(pcm: Pcm, in_hz: int, out_hz: int) -> Pcm:
    """Resample float32 [n]."""
    resampler = Resampler(in_hz, out_hz)
    return np.concatenate([resampler.push(pcm), resampler.finish()])
