"""Which generations step now, where a step of a few rows takes hardly longer than one of a single row (GPU).

An utterance that begins waits for the step under way: the fewer steps there are, the fewer utterances wait. So those
with audio to spare step together, and no step is scheduled while an utterance is about to begin, if all can wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SMALL_STEP = 16
"""Rows of a step on a GPU up to which it takes hardly longer than with one (`docs/benchmarks.md`)."""
SPARE_FRAMES = 3
"""Frames ahead of playback with which an utterance may miss a step: what was heard is known two frames late, at twice
the rate of speech four."""
FEW_ROWS = 48
"""Generations that may step up to which steps are small, where small steps are quicker (Hopper): the GPU has time for
more of them then, and an utterance that begins waits for a shorter one."""
JOINT_INTERVAL_S = 0.02
"""Longest time between two joint steps: half of the 40 ms after which another group of utterances gets credit, for two
frames of each (`pipeline/credit.py`)."""
HOLD_S = 0.004
"""Longest time for which one step waits for utterances that are about to begin: from a `start` message to its request
it takes 2 to 3 ms on the machines of `docs/benchmarks.md`."""
HOLD_ROWS = 64
"""Rows that may step beyond which a step does not wait: it takes longer then, and the GPU has no time to spare."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Numbers of generations that may step: all, those without audio to spare, and those that cannot wait at all."""

    all: int = 0
    urgent: int = 0
    pressing: int = 0

    @classmethod
    def of(cls, ahead: NDArray[np.int64], paced: NDArray[np.bool_]) -> Ready:
        """Counts the n generations that may step; arguments as those of `JointSteps.choose`."""
        urgent, pressing = (np.count_nonzero(~has_spare(ahead, paced, frames)) for frames in (SPARE_FRAMES, 1))
        return cls(len(ahead), int(urgent), int(pressing))

    def __add__(self, other: Ready) -> Ready:
        return Ready(self.all + other.all, self.urgent + other.urgent, self.pressing + other.pressing)


class JointSteps:
    """Chooses the generations of each step; synchronous, time is an argument.

    Paced generations with audio to spare step with others that cannot wait, or when `SMALL_STEP` may step, or when the
    last step is `JOINT_INTERVAL_S` ago. A small step takes those that cannot wait, and of the others those with the
    least audio, up to `SMALL_STEP` in all. Steps are small where up to `few_rows` may step and half of `SMALL_STEP`
    cannot wait; otherwise one that begins an utterance is, and the next one takes them all. While an utterance is about
    to begin, those with any audio ahead of playback wait for it.
    """

    def __init__(self, few_rows: int = 0) -> None:
        """`few_rows`: generations that may step up to which steps are small."""
        self._few_rows = few_rows
        self._next_s = -math.inf
        """When those with audio to spare step at the latest, if they may."""
        self._was_small = False
        """Whether some were left out of the last step."""
        self._held_s = self._asked_s = -math.inf
        """Since when the present step waits for an utterance that is about to begin, and when that was last asked."""

    def wait_s(self, ready: Ready, now_s: float, expected_s: float = -math.inf) -> float:
        """Returns the seconds until a step is due for the generations that are `ready`.

        0 for a step that is due, infinity where none is ready. `expected_s`: as for `hold_s`.
        """
        if not ready.all:
            return math.inf
        due = ready.urgent or ready.all >= SMALL_STEP
        wait_s = 0.0 if due else max(0.0, self._next_s - now_s)
        if wait_s or ready.pressing or ready.all > HOLD_ROWS:
            return wait_s
        return self.hold_s(expected_s, now_s)

    def hold_s(self, expected_s: float, now_s: float) -> float:
        """Returns the seconds for which a step that is due still waits for an utterance that is about to begin.

        `expected_s`: since when the newest is expected; a time to come counts for nothing. However many there are, one
        step waits `HOLD_S` at most, and is asked for again meanwhile.
        """
        if not now_s - HOLD_S < expected_s <= now_s:
            return 0.0
        if now_s - self._asked_s > 2 * HOLD_S:  # another step, or the first since one was scheduled
            self._held_s = now_s
        self._asked_s = now_s
        return max(0.0, min(expected_s, self._held_s) + HOLD_S - now_s)

    def choose(
        self,
        ahead: NDArray[np.int64],
        paced: NDArray[np.bool_],
        now_s: float,
        *,
        begins: bool = False,
        expected_s: float = -math.inf,
    ) -> NDArray[np.int64]:
        """Returns which of the n generations that may step do so now, by index, int64 [at most n].

        `ahead`: frames ahead of playback of each, int64 [n], -1 before its first; `paced`: bool [n]; `begins`: whether
        an utterance begins that is not among them; `expected_s`: as for `hold_s`.
        """
        begins |= bool((ahead < 0).any())
        if not begins and self.wait_s(Ready.of(ahead, paced), now_s, expected_s):
            return np.zeros(0, np.int64)
        self._asked_s, self._next_s = -math.inf, now_s + JOINT_INTERVAL_S
        patient = has_spare(ahead, paced)
        urgent, others = np.flatnonzero(~patient), np.flatnonzero(patient)
        # Beside many that cannot wait, unpaced ones in every step, the others would never have a place.
        few = len(ahead) <= self._few_rows and len(urgent) <= SMALL_STEP // 2
        self._was_small = len(ahead) > SMALL_STEP and (few or (begins and not self._was_small))
        if not self._was_small:
            return np.arange(len(ahead))
        others = others[np.argsort(ahead[others], kind="stable")]
        return np.concatenate([urgent, others[: max(0, SMALL_STEP - len(urgent))]])


def has_spare(ahead: NDArray[np.int64], paced: NDArray[np.bool_], frames: int = SPARE_FRAMES) -> NDArray[np.bool_]:
    """Whether each generation has `frames` ahead of playback, bool [n]; arguments as those of `JointSteps.choose`."""
    spare: NDArray[np.bool_] = paced & (ahead >= frames)
    return spare
