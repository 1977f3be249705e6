"""Extent of speech in audio: beginning, end and pauses; and its level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm
from voxgate.codecs.resample import Resampler
from voxgate.pipeline.silence import QUIET_RMS

_WINDOW = SAMPLE_RATE_HZ // 100
_LEVEL_WINDOW = SAMPLE_RATE_HZ // 10
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


def drift_db(pcm: Pcm) -> float | None:
    """Level of the last third less that of the first, in dB; None without speech in both."""
    third = len(pcm) // 3
    first, last = level_db(pcm[:third]), level_db(pcm[len(pcm) - third :])
    return None if first is None or last is None else last - first


def level_db(pcm: Pcm) -> float | None:
    """Level of speech float32 [n] at 24 kHz in dBFS, without its pauses; None if there is none.

    Windows of 0.1 s count that are at most 10 dB below the mean of those above silence, as in ITU-R BS.1770, but
    frequencies are not weighted.
    """
    count = len(pcm) // _LEVEL_WINDOW
    power = np.mean(pcm[: count * _LEVEL_WINDOW].astype(np.float64).reshape(count, _LEVEL_WINDOW) ** 2, axis=1)
    power = power[power >= QUIET_RMS**2]
    if not len(power):
        return None
    return float(10 * np.log10(np.mean(power[power >= np.mean(power) / 10])))


def resampled(pcm: Pcm, in_hz: int, out_hz: int) -> Pcm:
    """Resample float32 [n]."""
    resampler = Resampler(in_hz, out_hz)
    return np.concatenate([resampler.push(pcm), resampler.finish()])
