"""Sample rate conversion of a stream."""

from __future__ import annotations

import numpy as np
import soxr

from .pcm import Pcm

_NOTHING = np.zeros(0, np.float32)


class Resampler:
    """Converts a mono stream chunk by chunk; n samples in all become n * out_hz / in_hz, rounded half up.

    The output lags behind the input by a few milliseconds, inside the filter, until `finish`.
    """

    def __init__(self, in_hz: int, out_hz: int) -> None:
        self._in_hz, self._out_hz = in_hz, out_hz
        self._stream = None if in_hz == out_hz else soxr.ResampleStream(in_hz, out_hz, 1, dtype="float32")
        self._input_samples = self._output_samples = 0

    def push(self, pcm: Pcm) -> Pcm:
        """Converts a chunk, float32 [n], and returns what the filter puts out, float32 [m]."""
        self._input_samples += len(pcm)
        if self._stream is None:
            return pcm
        return self._within_total(self._stream.resample_chunk(np.ascontiguousarray(pcm, np.float32)))

    def finish(self) -> Pcm:
        """Returns the rest of the stream, which makes its length exact."""
        if self._stream is None:
            return _NOTHING
        rest = self._stream.resample_chunk(_NOTHING, last=True)
        missing = max(0, self._total() - self._output_samples - len(rest))
        return self._within_total(np.concatenate([rest, np.zeros(missing, np.float32)]))

    def _total(self) -> int:
        """Returns the length of the output that belongs to the input so far."""
        return (2 * self._input_samples * self._out_hz + self._in_hz) // (2 * self._in_hz)

    def _within_total(self, pcm: Pcm) -> Pcm:
        """Cuts off samples beyond the total, and counts the others as put out."""
        pcm = pcm[: self._total() - self._output_samples]
        self._output_samples += len(pcm)
        return pcm
