"""Whether an utterance begins now: batches that can wait leave the GPU to its step and its first frame."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

EXPECTED_S = 0.004
"""Time for which an expected utterance counts: its request follows within 1 to 3 ms, or it was refused."""
FIRST_FRAME_S = 0.01
"""Time for which a step that begins utterances counts at most: with its first frames it takes 3 to 6 ms."""


class Beginnings:
    """Written by the threads that run the talker's steps and send its frames, read by the codec's."""

    def __init__(self) -> None:
        self.expected_s: NDArray[np.float64] = np.zeros(1)
        """Of `SlotTables`: when each process last expected that an utterance begins."""
        self._began_s = self._ended_s = -math.inf
        """When the newest step that begins utterances was announced, and the newest whose first frames are decoded."""

    def begin(self, now_s: float) -> None:
        """A step that begins utterances is about to be launched."""
        self._began_s = now_s

    def end(self, began_s: float) -> None:
        """The first frames of the step that was announced at `began_s` are decoded, or are decoded elsewhere."""
        self._ended_s = max(self._ended_s, began_s)

    def under_way(self, now_s: float) -> bool:
        """Whether an utterance is expected or has no first frame yet; `now_s` is of the monotonic clock."""
        if self._ended_s < (began_s := self._began_s) and now_s - began_s < FIRST_FRAME_S:
            return True
        return bool(now_s - EXPECTED_S < self.expected_s.max() <= now_s)
