"""How long a stage's steps take by batch size, as measured: what it was, what it is, and what it would be."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Largest batch of each bucket: near batch sizes are measured together."""
_SLOW = 0.9
_STRETCH = 8
"""Steps whose mean counts: less than a second of them where it matters."""
_KEPT = 96
"""Samples of a bucket."""
_ENOUGH = 5
"""Fewer samples say nothing."""
FRESH_S = 20.0
"""What was measured longer ago is what a stage took once, not what it takes now."""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The newest steps of about one batch size; `steps` counts all there ever were."""

    batch: int
    steps: int
    p50_s: float
    p90_s: float


class _Point(NamedTuple):
    batch: float
    seconds: float


class LatencyCurve:
    """Seconds over the batch size, never falling.

    Between measured batches it goes straight; beyond the largest, on at the slope so far, or in proportion where only
    one batch size is known.
    """

    def __init__(self, points: Sequence[_Point]) -> None:
        self._points = _rising(points)

    def at(self, batch: float) -> float | None:
        """None where nothing was measured."""
        points = self._points
        if not points:
            return None
        first, last = points[0], points[-1]
        if batch <= first.batch:
            return first.seconds
        for left, right in pairwise(points):
            if batch <= right.batch:
                share = (batch - left.batch) / (right.batch - left.batch)
                return left.seconds + share * (right.seconds - left.seconds)
        if first is last:
            return last.seconds * batch / last.batch
        slope = (last.seconds - first.seconds) / (last.batch - first.batch)
        return last.seconds + slope * (batch - last.batch)

    def most_within(self, seconds: float, most: int) -> int:
        """The largest batch, up to `most`, that takes no longer than `seconds`; `most` where nothing was measured."""
        return bisect.bisect_right(range(1, most + 1), seconds, key=lambda batch: self.at(batch) or 0.0)


class _Bucket:
    """The newest steps of about one batch size, and how long they took when the machine was first measured."""

    def __init__(self) -> None:
        self.steps = 0
        self.known: _Point | None = None
        """The median of those first steps: they are few, and an accident among them must not stand for good."""
        self._samples: deque[tuple[float, int, float]] = deque(maxlen=_KEPT)

    def add(self, now_s: float, batch: int, seconds: float) -> None:
        self._samples.append((now_s, batch, seconds))
        self.steps += 1

    def settle(self) -> None:
        self.known = _Point(self._batch(), _quantile(self._seconds(), 0.5))

    def last(self) -> _Point:
        """The newest steps, however long ago they were."""
        return _Point(self._batch(), _sustained(self._seconds()))

    def fresh(self, now_s: float) -> tuple[_Point, float] | None:
        """The newest steps and their median; None when they are too few or too long ago."""
        new = [seconds for at_s, _, seconds in self._samples if now_s - at_s <= FRESH_S]
        return (_Point(self._batch(), _sustained(new)), _quantile(new, 0.5)) if len(new) >= _ENOUGH else None

    def summary(self) -> StepSummary:
        seconds = self._seconds()
        return StepSummary(round(self._batch()), self.steps, _quantile(seconds, 0.5), _quantile(seconds, _SLOW))

    def _batch(self) -> float:
        return sum(batch for _, batch, _ in self._samples) / len(self._samples)

    def _seconds(self) -> list[float]:
        return [seconds for _, _, seconds in self._samples]


class StepTimes:
    """Step durations by batch size, in seconds. Time comes in as an argument.

    A batch size that was measured lately counts as measured. Of others there are the first figures (`settle`, after a
    calibration), scaled by how the present batches compare to their own: a machine that has become slower is slower at
    every batch. So a bad moment is remembered for `FRESH_S` at most. Without first figures the last ones stand.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}

    def record(self, batch: int, seconds: float, now_s: float) -> None:
        """A step of `batch` rows took so long."""
        bound = _BATCHES[min(bisect.bisect_left(_BATCHES, batch), len(_BATCHES) - 1)]
        self._buckets.setdefault(bound, _Bucket()).add(now_s, batch, seconds)

    def forget(self) -> None:
        """Begin anew: what was measured was warming up."""
        self._buckets.clear()

    def settle(self) -> None:
        """Take what was measured so far as the first figures."""
        for bucket in self._buckets.values():
            bucket.settle()

    def curve(self, now_s: float) -> LatencyCurve:
        """What steps take that are slow but not the slowest (`_sustained`), over the batch size."""
        fresh = {bound: news for bound, bucket in self._buckets.items() if (news := bucket.fresh(now_s))}
        calibrated = any(bucket.known for bucket in self._buckets.values())
        points = []
        for bound, bucket in sorted(self._buckets.items()):
            if (news := fresh.get(bound)) is not None:
                points.append(news[0])
            elif (known := bucket.known) is not None:
                points.append(known._replace(seconds=known.seconds * self._drift(fresh, known.batch)))
            elif not calibrated:
                points.append(bucket.last())
        return LatencyCurve(points)

    def summaries(self) -> Sequence[StepSummary]:
        """By batch size, for statistics."""
        return [self._buckets[bound].summary() for bound in sorted(self._buckets)]

    def _drift(self, fresh: Mapping[int, tuple[_Point, float]], batch: float) -> float:
        """How much longer steps of `batch` rows must be thought to take now than at first.

        The largest batch measured lately is asked. A small one says little of a large one: single steps find their
        caches cold, so it is believed in proportion.
        """
        for bound in sorted(fresh, reverse=True):
            if (known := self._buckets[bound].known) is not None and known.seconds:
                point, median_s = fresh[bound]
                return 1 + (median_s / known.seconds - 1) * min(1.0, 2 * point.batch / batch)
        return 1.0


def _sustained(seconds: Sequence[float]) -> float:
    """What nine of ten stretches of steps stay below, on the mean of each.

    Speech runs ahead of its listeners, so a single slow step is no harm; one slow stretch after the other is.
    """
    stretches = [seconds[at : at + _STRETCH] for at in range(0, len(seconds), _STRETCH)]
    return _quantile([sum(stretch) / len(stretch) for stretch in stretches], _SLOW)


def _quantile(values: Sequence[float], share: float) -> float:
    """Between the two values nearest to it, in proportion."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _rising(points: Sequence[_Point]) -> list[_Point]:
    """The nearest points that never fall with the batch: neighbours out of order become their mean (PAVA)."""
    blocks: list[list[_Point]] = []
    for point in points:
        blocks.append([point])
        while len(blocks) > 1 and _mean_s(blocks[-2]) > _mean_s(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [_Point(point.batch, _mean_s(block)) for block in blocks for point in block]


def _mean_s(block: Sequence[_Point]) -> float:
    return sum(point.seconds for point in block) / len(block)
