"""The volume of speech: a gain that changes without a click and does not clip."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

RAMP_SAMPLES = SAMPLE_RATE_HZ // 100
"""Samples over which a change is spread, 10 ms: a sudden one is heard as a click."""
_KNEE = 0.8
"""Level above which amplified speech is limited, for gains from `_FULL_LIMIT_GAIN` on."""
_FULL_LIMIT_GAIN = 1.25


class Gain:
    """Multiplies a stream. A gain of 1 returns it as it is."""

    def __init__(self, gain: float = 1.0) -> None:
        self._gain = self._target = gain
        self._ramped = RAMP_SAMPLES
        """Samples of the last change that were put out."""

    def change(self, gain: float) -> None:
        """Changes the gain over the next RAMP_SAMPLES samples."""
        if gain != self._target:
            self._gain, self._target, self._ramped = self._current(), gain, 0

    def apply(self, pcm: Pcm) -> Pcm:
        """Returns the next samples, float32 [n], amplified."""
        if self._ramped >= RAMP_SAMPLES:
            return pcm if self._target == 1 else _limited(pcm, np.float32(self._target))
        steps = np.minimum(np.arange(self._ramped, self._ramped + len(pcm)) + 1, RAMP_SAMPLES) / RAMP_SAMPLES
        gains = (self._gain + (self._target - self._gain) * steps).astype(np.float32)
        self._ramped = min(RAMP_SAMPLES, self._ramped + len(pcm))
        return _limited(pcm, gains)

    def _current(self) -> float:
        return self._gain + (self._target - self._gain) * self._ramped / RAMP_SAMPLES


def _limited(pcm: Pcm, gain: NDArray[np.float32] | np.float32) -> Pcm:
    """Returns the product, softly limited to [-1, 1] as far as it is louder than the input.

    The knee comes down from 1 as the gain grows from 1, so that a limit does not begin in a jump.
    """
    loud: Pcm = (pcm * gain).astype(np.float32)
    over = np.clip((gain - 1) / (_FULL_LIMIT_GAIN - 1), 0, 1)
    knee = np.broadcast_to(1 - (1 - _KNEE) * over, loud.shape)
    level = np.abs(loud)
    above = (level > knee) & (np.broadcast_to(over, loud.shape) > 0)
    if above.any():
        room = 1 - knee[above]
        loud[above] = np.sign(loud[above]) * (knee[above] + room * np.tanh((level[above] - knee[above]) / room))
    return loud
