"""Sample rate conversion of a stream."""

from __future__ import annotations

import numpy as np
import soxr

from .pcm import Pcm

_NOTHING = np.zeros(0, np.float32)


class Resampler:
    """Converts a mono stream chunk by chunk; `n` samples in all become n * out / in, rounded half up.

    Some output lags behind the input inside the filter, a few milliseconds of it, until `finish`.
    """

    def __init__(self, in_hz: int, out_hz: int) -> None:
        self._in_hz, self._out_hz = in_hz, out_hz
        self._stream = None if in_hz == out_hz else soxr.ResampleStream(in_hz, out_hz, 1, dtype="float32")
        self._taken = 0
        self._given = 0

    def push(self, pcm: Pcm) -> Pcm:
        """Convert a chunk; pcm: float32 [n], returns float32 [m]."""
        self._taken += len(pcm)
        if self._stream is None:
            return pcm
        return self._give(self._stream.resample_chunk(np.ascontiguousarray(pcm, np.float32)))

    def finish(self) -> Pcm:
        """The rest of the stream, which makes its length exact."""
        if self._stream is None:
            return _NOTHING
        rest = self._stream.resample_chunk(_NOTHING, last=True)
        missing = max(0, self._total() - self._given - len(rest))
        return self._give(np.concatenate([rest, np.zeros(missing, np.float32)]))

    def _total(self) -> int:
        return (2 * self._taken * self._out_hz + self._in_hz) // (2 * self._in_hz)

    def _give(self, pcm: Pcm) -> Pcm:
        pcm = pcm[: self._total() - self._given]
        self._given += len(pcm)
        return pcm
