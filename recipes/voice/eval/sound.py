"""What can be measured of a sound without understanding it: where it begins and ends, and its pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm
from voxgate.codecs.resample import Resampler
from voxgate.pipeline.silence import QUIET_RMS

LISTENING_HZ = 16_000
_WINDOW = SAMPLE_RATE_HZ // 100
PAUSE_S = 0.15
"""A shorter silence belongs to a word (the closure of a stop lasts about 0.1 s)."""


@dataclass(frozen=True, slots=True)
class SoundExtent:
    """Seconds: silence before the first sound, from the first to the last sound, and the pauses in between."""

    lead_s: float
    span_s: float
    pauses_s: float


def shape(pcm: Pcm) -> SoundExtent:
    """Of float32 [n] at 24 kHz, in steps of 10 ms; all of it lead where there is no sound at all.

    What is louder than silence for one step alone is a click, not the beginning of a word.
    """
    count = len(pcm) // _WINDOW
    windows = pcm[: count * _WINDOW].astype(np.float64).reshape(count, _WINDOW)
    over = np.pad(np.sqrt(np.mean(windows**2, axis=1)) >= QUIET_RMS, 1)
    loud = np.flatnonzero(over[1:-1] & (over[:-2] | over[2:]))
    if not len(loud):
        return SoundExtent(count / 100, 0.0, 0.0)
    gaps_s = (np.diff(loud) - 1) / 100
    return SoundExtent(
        lead_s=float(loud[0]) / 100,
        span_s=float(loud[-1] + 1 - loud[0]) / 100,
        pauses_s=float(gaps_s[gaps_s >= PAUSE_S].sum()),
    )


def resampled(pcm: Pcm, in_hz: int, out_hz: int) -> Pcm:
    """The whole of float32 [n] at another rate."""
    resampler = Resampler(in_hz, out_hz)
    return np.concatenate([resampler.push(pcm), resampler.finish()])


def for_listening(pcm: Pcm) -> NDArray[np.int16]:
    """Float32 [n] at 24 kHz as the recogniser takes it: int16 at 16 kHz."""
    sound = resampled(pcm, SAMPLE_RATE_HZ, LISTENING_HZ)
    return (np.clip(sound, -1, 1) * 32767).astype(np.int16)
