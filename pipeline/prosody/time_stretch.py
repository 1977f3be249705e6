"""Changes the rate of speech and keeps its pitch, by synchronised overlap-add (SOLA).

Segments of the speech are joined at another distance than they had. Each is moved by up to `TOLERANCE` samples to where
it resembles the natural continuation of the one before it most, and faded over from that. Position is exact where
speech begins and ends, and within 25 ms of the linear one between. (Verhelst and Roelands, "An overlap-add technique
based on waveform similarity (WSOLA) for high quality time-scale modification of speech", ICASSP 1993.)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

SEGMENT = 600
"""Samples between two joins, 25 ms: fewer joins sound better, and more of them repeat or drop less at each."""
FADE = 160
"""Samples of a crossfade, 7 ms: about a period of most voices."""
TOLERANCE = 240
"""Most samples by which a segment is moved: half the range, 20 ms, holds a period of any voice."""
_SILENT_ENERGY = 1e-3
"""Added to the energy of a candidate, so that noise of silence does not decide."""

_FADE_IN = (0.5 - 0.5 * np.cos(np.pi * (np.arange(FADE) + 0.5) / FADE)).astype(np.float32)


class TimeStretch:
    """Stretches one run of speech: n samples in all become round(n / rate), however they are divided.

    The output lags behind by at most 45 ms of the input until `finish`. A rate of 1 returns its input as it is, without
    a lag.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._speech: Pcm = np.zeros(0, np.float32)
        """Input from `_origin` on."""
        self._origin = 0
        self._segments = 0
        """Segments put out."""
        self._next = 0
        """Input position of the natural continuation of the last segment."""

    def push(self, pcm: Pcm) -> Pcm:
        """Accepts speech, float32 [n] at 24 kHz; returns the audio that is ready, float32 [m]."""
        if self.rate == 1:
            return pcm
        self._speech = np.concatenate([self._speech, pcm])
        parts = []
        while self._input >= self._needed():
            parts.append(self._segment(self._nominal() + TOLERANCE))
        self._forget()
        return np.concatenate(parts) if parts else self._speech[:0]

    def finish(self) -> Pcm:
        """Returns the rest, which ends with the last sample of the input. The next `push` begins a new run."""
        parts = []
        while self._left() > SEGMENT + FADE:
            parts.append(self._segment(max(0, self._input - SEGMENT - FADE)))
        if left := self._left():
            parts.append(self._faded(max(0, self._input - left), left))
        self._speech, self._origin, self._segments, self._next = self._speech[:0], 0, 0, 0
        return np.concatenate(parts) if parts else self._speech

    @property
    def _input(self) -> int:
        """Samples of input so far."""
        return self._origin + len(self._speech)

    def _left(self) -> int:
        """Returns the samples of output that belong to the input so far and were not put out."""
        return 0 if self.rate == 1 else round(self._input / self.rate) - self._segments * SEGMENT

    def _nominal(self) -> int:
        """Returns where the next segment begins in the input if its middle lies where it belongs."""
        if not self._segments:
            return 0
        return round(self._segments * SEGMENT * self.rate + SEGMENT * (self.rate - 1) / 2)

    def _needed(self) -> int:
        """Returns the input at which the next segment can be put out: all candidates, and a rest to fade to."""
        candidates = self._nominal() + TOLERANCE + SEGMENT + FADE
        return max(candidates, math.ceil(((self._segments + 1) * SEGMENT + FADE) * self.rate))

    def _segment(self, last: int) -> Pcm:
        """Returns the next segment, which begins at input position `last` at the latest."""
        begin = 0
        if self._segments:
            nominal = min(self._nominal(), last)
            begin = self._best_match(max(0, nominal - TOLERANCE), min(nominal + TOLERANCE, last))
        pcm = self._faded(begin, SEGMENT)
        self._segments += 1
        self._next = begin + SEGMENT
        return pcm

    def _best_match(self, first: int, last: int) -> int:
        """Returns the position from `first` to `last` at which the input resembles the natural continuation most."""
        candidates = self._at(first, last - first + FADE).astype(np.float64)
        continuation = self._at(self._next, FADE).astype(np.float64)
        energy = np.concatenate([[0.0], np.cumsum(np.square(candidates))])
        energy = energy[FADE:] - energy[:-FADE]
        likeness = np.correlate(candidates, continuation, "valid") / np.sqrt(energy + _SILENT_ENERGY)
        return first + int(np.argmax(likeness))

    def _faded(self, begin: int, count: int) -> Pcm:
        """Returns `count` samples of the input from `begin` on, faded over from the natural continuation."""
        pcm = self._at(begin, count)
        fade = min(FADE, count)
        if self._segments and begin != self._next:
            weight = _FADE_IN[:fade]
            pcm[:fade] = pcm[:fade] * weight + self._at(self._next, fade) * (1 - weight)
        return pcm

    def _at(self, begin: int, count: int) -> NDArray[np.float32]:
        """Returns a copy of `count` samples of the input from `begin` on, with zeros behind its end."""
        pcm = np.zeros(count, np.float32)
        found = self._speech[begin - self._origin : begin - self._origin + count]
        pcm[: len(found)] = found
        return pcm

    def _forget(self) -> None:
        """Drops the input that no further segment can use."""
        unused = min(self._next, max(0, self._nominal() - TOLERANCE), self._input - SEGMENT - FADE) - self._origin
        if unused > 0:
            self._speech = self._speech[unused:].copy()
            self._origin += unused
