"""Which generations step now, where a step of a few rows takes hardly longer than one of a single row (GPU).

An utterance that begins waits for the step under way: the fewer steps there are, the fewer utterances wait. So those
with audio to spare step together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

SMALL_STEP = 16
"""Rows of a step on a GPU up to which it takes hardly longer than with one (`docs/benchmarks.md`)."""
SPARE_FRAMES = 3
"""Frames ahead of playback with which an utterance may miss a step: what was heard is known two frames late, at twice
the rate of speech four."""
JOINT_INTERVAL_S = 0.02
"""Longest time between two joint steps: half of the 40 ms after which another group of utterances gets credit, for two
frames of each (`pipeline/credit.py`)."""


class JointSteps:
    """Chooses the generations of each step; synchronous, time is an argument.

    Paced generations with audio to spare step with others that cannot wait, or when `SMALL_STEP` may step, or when the
    last step of all is `JOINT_INTERVAL_S` ago. A step that begins an utterance is small: some wait for the next one, of
    which all are a part.
    """

    def __init__(self) -> None:
        self._next_s = -math.inf
        """When those with audio to spare step at the latest, if they may."""
        self._was_small = False
        """Whether some were left out of the last step because another began."""

    def wait_s(self, ready: int, urgent: int, now_s: float) -> float:
        """Returns the seconds until a step is due for `ready` generations, `urgent` of which have no audio to spare.

        0 for a step that is due, infinity where none is ready.
        """
        if not ready:
            return math.inf
        return 0.0 if urgent or ready >= SMALL_STEP else max(0.0, self._next_s - now_s)

    def choose(
        self, ahead: NDArray[np.int64], paced: NDArray[np.bool_], now_s: float, *, begins: bool = False
    ) -> NDArray[np.int64]:
        """Returns which of the n generations that may step do so now, by index, int64 [at most n].

        `ahead`: frames ahead of playback of each, int64 [n], -1 before its first; `paced`: bool [n]; `begins`: whether
        an utterance begins that is not among them.
        """
        patient = has_spare(ahead, paced)
        begins |= bool((ahead < 0).any())
        urgent, others = np.flatnonzero(~patient), np.flatnonzero(patient)
        if not begins and self.wait_s(len(ahead), len(urgent), now_s):
            return np.zeros(0, np.int64)
        if begins and len(ahead) > SMALL_STEP and not self._was_small:
            self._was_small = True
            others = others[np.argsort(ahead[others], kind="stable")]
            return np.concatenate([urgent, others[: max(0, SMALL_STEP - len(urgent))]])
        self._was_small, self._next_s = False, now_s + JOINT_INTERVAL_S
        return np.arange(len(ahead))


def has_spare(ahead: NDArray[np.int64], paced: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each generation may miss a step, bool [n]; arguments as those of `JointSteps.choose`."""
    spare: NDArray[np.bool_] = paced & (ahead >= SPARE_FRAMES)
    return spare
