"""When the next step is ordered while one is under way: as late as its preparation allows.

Who comes, and whose credit comes, before the order is in that step; after it he waits for one step more. And Python's
other threads, that send frames and decode them, have the time to themselves.
"""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass

from .buckets import BUCKETS

MARGIN_S = 0.0006
"""Waiting ends so much before preparation would have to begin: a device without work costs everybody."""
MOST_S = 0.02
_KEPT = 8
"""Steps of a size, the quickest of which tells when the next may be over."""
_ENOUGH = 4
_PREPARED = 16
"""Steps whose preparation tells what the next one takes: as long as three of four. A prompt's takes longer, but whoever
comes with one would otherwise have waited for a step more."""


@dataclass(slots=True)
class _Step:
    size: tuple[int, int]
    ordered_s: float
    launched_s: float | None = None


class OrderTimes:
    """Time comes in as an argument, in seconds. Steps are over in the order of their orders."""

    def __init__(self) -> None:
        self._under_way: deque[_Step] = deque()
        self._took: dict[tuple[int, int], deque[float]] = {}
        self._preparing: deque[float] = deque(maxlen=_PREPARED)
        self._over_s = 0.0
        """The last outcome: the device was free from then on."""

    def ordered(self, rows: int, positions: int, now_s: float) -> None:
        """`positions`: of prompts and frames together."""
        size = bisect.bisect_left(BUCKETS, rows), bisect.bisect_left(BUCKETS, positions)
        self._under_way.append(_Step(size, now_s))

    def launched(self, now_s: float) -> None:
        """The device has the beginning of the newest step."""
        if self._under_way and (step := self._under_way[-1]).launched_s is None:
            step.launched_s = now_s
            self._preparing.append(now_s - step.ordered_s)

    def over(self, now_s: float) -> None:
        """The oldest step's outcome is there."""
        if not self._under_way:
            return
        step = self._under_way.popleft()
        if step.launched_s is not None:
            took = self._took.setdefault(step.size, deque(maxlen=_KEPT))
            took.append(now_s - max(step.launched_s, self._over_s))
        self._over_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long the next order can wait; 0 where nothing is under way, or it is not known how long that takes."""
        if len(self._under_way) != 1:
            return 0.0
        step = self._under_way[0]
        took = self._took.get(step.size, ())
        if step.launched_s is None or len(took) < _ENOUGH:
            return 0.0
        over_s = max(step.launched_s, self._over_s) + min(took)
        preparing_s = sorted(self._preparing)[3 * len(self._preparing) // 4]
        return min(max(0.0, over_s - preparing_s - MARGIN_S - now_s), MOST_S)
