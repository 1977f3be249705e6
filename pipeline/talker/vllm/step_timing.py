"""How long the engine's steps take, told from the two moments a scheduler sees of each: its order and its outcome."""
# TODO-DOC When the next step is ordered while one is under way: as late as its preparation allows. Who comes, and
# TODO-DOC whose credit comes, before the order is in that step; after it he waits for one step more. And Python's
# TODO-DOC other threads, that send frames and decode them, have the time to themselves.

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass

from ..cuda.graph_sizes import GRAPH_SIZES


class StepTimer:
    """A step counts from its order or, when the engine did not rest since, from the outcome of the one before it.

    So it holds for engines that order a step while the one before it runs, and what the engine does between two steps
    counts too. Outcomes come in the order of the orders; some orders, of nothing, have none.
    """

    def __init__(self) -> None:
        self._ordered: deque[tuple[int, float]] = deque()
        self._outcome_s: float | None = None
        """Of the step before, unless the engine rested since."""
        self._last_s = 0.0

    def order(self, step: object, now_s: float) -> None:
        self._ordered.append((id(step), now_s))

    def rest(self) -> None:
        """The engine has nothing to do."""
        self._outcome_s = None

    def outcome(self, step: object, now_s: float) -> float:
        """How long the step took, in seconds."""
        began_s = now_s
        while self._ordered:
            ordered, ordered_s = self._ordered.popleft()
            if ordered == id(step):
                began_s = max(ordered_s, self._last_s) if self._outcome_s is None else self._outcome_s
                break
        self._outcome_s = self._last_s = now_s
        return now_s - began_s


MARGIN_S = 0.0006
"""Waiting ends so much before preparation would have to begin: a device without work costs everybody."""
MAX_WAIT_S = 0.02
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


class JustInTimeEstimator:
    """Time comes in as an argument, in seconds. Steps are over in the order of their orders."""

    def __init__(self) -> None:
        self._under_way: deque[_Step] = deque()
        self._took: dict[tuple[int, int], deque[float]] = {}
        self._preparing: deque[float] = deque(maxlen=_PREPARED)
        self._over_s = 0.0
        """The last outcome: the device was free from then on."""

    def ordered(self, rows: int, positions: int, now_s: float) -> None:
        """`positions`: of prompts and frames together."""
        size = bisect.bisect_left(GRAPH_SIZES, rows), bisect.bisect_left(GRAPH_SIZES, positions)
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
        return min(max(0.0, over_s - preparing_s - MARGIN_S - now_s), MAX_WAIT_S)
