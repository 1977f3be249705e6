"""Learning rates by the share of the time that has passed: each step is given its seconds, not a number of updates."""

from __future__ import annotations

import math
import time


class Clock:
    """Seconds given to a step, and how much of them is gone."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """0 at the start, 1 when the time is up; more after it."""
        return self.elapsed / self.seconds


def warm_up(update: int, updates: int) -> float:
    return min(1.0, (update + 1) / updates)


def cosine(share: float, floor: float) -> float:
    """From 1 to `floor`."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def flat_then_linear(share: float, turn: float, floor: float) -> float:
    """1 as far as `turn`, from there straight down; `floor` at least."""
    return 1.0 if share < turn else max(floor, (1 - share) / (1 - turn))


class Every:
    """Says yes when that many seconds have passed since it last did."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True
