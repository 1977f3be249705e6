"""Measured durations of a stage's steps: for planning (`StepTimes`) and for timing the next step (`StepTimer`).

A step is one batch of one stage: a talker step makes one frame of each utterance in it, a codec step decodes one job.
`StepTimes` answers how long a step of some batch size takes on this machine, slow steps included; capacity, the
scheduler's largest batch and the limits of the watchdogs follow from it. `StepTimer` follows the steps in flight and
answers when the one in progress will probably end, judged by the quickest steps. Both are synchronous, and time is an
argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from .cuda.graph_sizes import GRAPH_SIZES

_BUCKET_LIMITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Largest batch of each bucket; batch sizes of one bucket are measured together."""
_SLOW_QUANTILE = 0.9
_STRETCH_S = 0.6
"""Consecutive steps that take as long together have one mean: generation is further ahead of its playback than that."""
_BUCKET_SAMPLES = 256
"""Newest samples kept of a bucket."""
_MIN_FRESH_SAMPLES = 5
"""Fewer fresh samples than this are not used."""
_LARGE_BATCH, _MIN_LARGE_SAMPLES = 512, 16
"""Beyond the batch, fewer samples than that are not used: groups of utterances step together when a step before was
late, so that few such steps tell of the worst moments only, and those of a calibration of its begin and end."""
FRESH_S = 20.0
"""Age from which a sample no longer describes what a step takes now."""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Durations of the newest steps of similar batch sizes; `batch` is their mean size, `steps` counts all steps."""

    batch: int
    steps: int
    p50_s: float
    p90_s: float


class _Point(NamedTuple):
    batch: float
    seconds: float


class LatencyCurve:
    """Seconds of a step over its batch size; never falls as the batch grows.

    The curve is linear between measured batch sizes. Beyond the largest it continues at the mean slope, or in
    proportion to the batch where only one size was measured.
    """

    def __init__(self, points: Sequence[_Point]) -> None:
        """`points` ascend by batch; neighbours that fall are averaged."""
        self._points = _monotone(points)

    def __str__(self) -> str:
        return (
            ", ".join(f"{1000 * seconds:.1f} ms for {batch:.0f}" for batch, seconds in self._points) or "not measured"
        )

    def at(self, batch: float) -> float | None:
        """Returns the seconds of a step of `batch` rows; None when nothing was measured."""
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

    def largest_batch_within(self, seconds: float, limit: int) -> int:
        """Returns the largest batch, up to `limit`, that takes at most `seconds`; `limit` when nothing was measured."""
        return bisect.bisect_right(range(1, limit + 1), seconds, key=lambda batch: self.at(batch) or 0.0)


class StepTimes:
    """Step durations by batch size.

    A bucket with fresh samples is described by them. Every other bucket is described by its baseline (taken by
    `commit_baseline` after a calibration), scaled by how much longer the fresh buckets take now than at their own
    baseline: a machine that became slower is slower at every batch size. A bad moment is therefore forgotten after
    `FRESH_S`. Without any baseline, the last samples of a bucket are used however old they are.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}

    def record(self, batch: int, seconds: float, now_s: float) -> None:
        """Adds the duration of one step of `batch` rows."""
        limit = _BUCKET_LIMITS[min(bisect.bisect_left(_BUCKET_LIMITS, batch), len(_BUCKET_LIMITS) - 1)]
        self._buckets.setdefault(limit, _Bucket()).add(now_s, batch, seconds)

    def reset(self) -> None:
        """Discards all samples and baselines; used after warming up."""
        self._buckets.clear()

    def commit_baseline(self) -> None:
        """Takes the samples so far as the baseline of their buckets."""
        for limit, bucket in self._buckets.items():
            if limit <= _LARGE_BATCH or bucket.steps >= _MIN_LARGE_SAMPLES:
                bucket.commit_baseline()

    def curve(self, now_s: float) -> LatencyCurve:
        """Returns the durations that slow stretches of steps take at `now_s` (`_sustained`), over the batch size."""
        fresh = {
            limit: news
            for limit, bucket in self._buckets.items()
            if (news := bucket.fresh(now_s, _MIN_FRESH_SAMPLES if limit <= _LARGE_BATCH else _MIN_LARGE_SAMPLES))
        }
        calibrated = any(bucket.baseline for bucket in self._buckets.values())
        points = []
        for limit, bucket in sorted(self._buckets.items()):
            if (news := fresh.get(limit)) is not None:
                points.append(news[0])
            elif (baseline := bucket.baseline) is not None:
                points.append(baseline._replace(seconds=baseline.seconds * self._drift(fresh, baseline.batch)))
            elif not calibrated:
                points.append(bucket.last())
        return LatencyCurve(points)

    def summaries(self) -> Sequence[StepSummary]:
        """Returns one summary per bucket, by ascending batch size, for statistics."""
        return [self._buckets[limit].summary() for limit in sorted(self._buckets)]

    def _drift(self, fresh: Mapping[int, tuple[_Point, float]], batch: float) -> float:
        """Returns the factor by which steps of `batch` rows probably take longer now than at their baseline.

        The largest bucket with fresh samples decides. A small batch says little about a large one, because single
        steps find their caches cold; so its factor counts in proportion to the batch sizes.
        """
        for limit in sorted(fresh, reverse=True):
            if (baseline := self._buckets[limit].baseline) is not None and baseline.seconds:
                point, median_s = fresh[limit]
                return 1 + (median_s / baseline.seconds - 1) * min(1.0, 2 * point.batch / batch)
        return 1.0


class _Bucket:
    """The newest samples of similar batch sizes, and their baseline."""

    def __init__(self) -> None:
        self.steps = 0
        self.baseline: _Point | None = None
        """Median of the calibration's samples: they are few, and one outlier among them must not last."""
        self._samples: deque[tuple[float, int, float]] = deque(maxlen=_BUCKET_SAMPLES)
        """Time, batch and seconds of each."""

    def add(self, now_s: float, batch: int, seconds: float) -> None:
        self._samples.append((now_s, batch, seconds))
        self.steps += 1

    def commit_baseline(self) -> None:
        self.baseline = _Point(self._batch(), _quantile(self._seconds(), 0.5))

    def last(self) -> _Point:
        """Returns the sustained duration of the newest samples, whatever their age."""
        return _Point(self._batch(), _sustained(self._seconds()))

    def fresh(self, now_s: float, least: int) -> tuple[_Point, float] | None:
        """Returns the sustained duration of the fresh samples and their median; None for less than `least`."""
        seconds = [seconds for at_s, _, seconds in self._samples if now_s - at_s <= FRESH_S]
        if len(seconds) < least:
            return None
        return _Point(self._batch(), _sustained(seconds)), _quantile(seconds, 0.5)

    def summary(self) -> StepSummary:
        seconds = self._seconds()
        return StepSummary(
            round(self._batch()), self.steps, _quantile(seconds, 0.5), _quantile(seconds, _SLOW_QUANTILE)
        )

    def _batch(self) -> float:
        return sum(batch for _, batch, _ in self._samples) / len(self._samples)

    def _seconds(self) -> list[float]:
        return [seconds for _, _, seconds in self._samples]


def _sustained(seconds: Sequence[float]) -> float:
    """Returns the 90th percentile of the means of consecutive stretches of steps, of `_STRETCH_S` each.

    Speech is generated ahead of its playback, so one slow step does no harm; one slow stretch after another does. What
    is left of the oldest steps is no stretch, unless there is no other.
    """
    means, steps, took_s = [], 0, 0.0
    for step_s in reversed(seconds):
        steps, took_s = steps + 1, took_s + step_s
        if took_s >= _STRETCH_S:
            means.append(took_s / steps)
            steps, took_s = 0, 0.0
    return _quantile(means or [took_s / steps], _SLOW_QUANTILE)


def _quantile(values: Sequence[float], share: float) -> float:
    """Returns the quantile, interpolated linearly between the two nearest values."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _monotone(points: Sequence[_Point]) -> list[_Point]:
    """Returns the nearest points that never fall (isotonic regression by pooling adjacent violators)."""
    pools: list[list[_Point]] = []
    for point in points:
        pools.append([point])
        while len(pools) > 1 and _mean_s(pools[-2]) > _mean_s(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [_Point(point.batch, _mean_s(pool)) for pool in pools for point in pool]


def _mean_s(pool: Sequence[_Point]) -> float:
    return sum(point.seconds for point in pool) / len(pool)


_SHAPE_SAMPLES = 8
"""Newest steps of a shape; the quickest of them is the expected duration."""
_PREPARATION_SAMPLES = 16
"""Newest steps whose preparation times are kept."""

Shape = TypeVar("Shape", bound=Hashable)


@dataclass(slots=True)
class _StepInFlight(Generic[Shape]):
    step: object
    ordered_s: float
    shape: Shape | None
    launched_s: float | None = None


class StepTimer(Generic[Shape]):
    """Follows steps from their order to their end, and expects the end of the step in progress.

    A step is *ordered*, then *launched* on the device, then *finished*. Steps finish in the order of their orders. A
    step can be ordered while the one before it runs; the device begins it when that one ends. A step of shape None
    does not reach the device: it counts for the durations that `finished` returns and for nothing else. An order
    whose step is never finished is dropped when a later step is.
    """

    def __init__(self, min_samples: int = 1) -> None:
        """`min_samples`: finished steps of a shape below which no end is expected."""
        self._min_samples = min_samples
        self._in_flight: deque[_StepInFlight[Shape]] = deque()
        self._durations: dict[Shape, deque[float]] = {}
        self._preparations: deque[float] = deque(maxlen=_PREPARATION_SAMPLES)
        self._finished_s = 0.0
        """End of the previous step."""
        self._device_free_s = 0.0
        """End of the previous step that reached the device."""
        self._idle = True
        """Whether there was nothing to do since the previous step ended."""

    @property
    def in_flight(self) -> int:
        """Steps that were ordered for the device and have not finished."""
        return sum(step.shape is not None for step in self._in_flight)

    def ordered(self, step: object, now_s: float, shape: Shape | None = None) -> None:
        """Adds a step; `finished` knows it by identity. Steps of one shape take about the same time."""
        self._in_flight.append(_StepInFlight(step, now_s, shape))

    def launched(self, now_s: float) -> None:
        """Notes that the newest step was handed to the device; ignored when it was before."""
        step = self._newest()
        if step is not None and step.launched_s is None:
            step.launched_s = now_s
            self._preparations.append(now_s - step.ordered_s)

    def finished(
        self, step: object, now_s: float, device_s: float | None = None, *, ended_s: float | None = None
    ) -> float:
        """Ends a step and returns its duration in seconds, which includes the host's work since the previous step.

        The duration counts from the end of the previous step. After `idle` it is the longer of the step's preparation,
        which overlaps the step before where steps follow one another, and the time from its launch; where no launch was
        noted, the time from its order. It is 0 for an unknown step. `device_s` is the step's duration as the device
        measured it, where it did.
        `ended_s`: when the device completed the step, if that is known. `now_s` may be later: where nothing is ordered
        behind a step, its end is looked for when it is expected. Taken for the end, it would be expected later each
        time.
        """
        began_s = now_s
        while self._in_flight:
            oldest = self._in_flight.popleft()
            if oldest.step is step:
                if ended_s is not None and max(oldest.launched_s or math.inf, self._finished_s) < ended_s < now_s:
                    now_s = ended_s
                began_s = max(self._finished_s, self._ready_s(oldest, now_s)) if self._idle else self._finished_s
                self._record(oldest, now_s, device_s)
                break
        self._finished_s, self._idle = now_s, False
        return now_s - began_s

    def _ready_s(self, step: _StepInFlight[Shape], now_s: float) -> float:
        """When a step that ends now would have begun behind another one."""
        if step.launched_s is None:
            return step.ordered_s
        return min(step.launched_s, now_s - (step.launched_s - step.ordered_s))

    def idle(self) -> None:
        """Notes that nothing is left to order: time until the next order belongs to no step."""
        self._idle = True

    def expected_end_s(self) -> float | None:
        """Returns when the newest step will end at the earliest; None when it was not launched or is too little known.

        Valid as long as all steps before it have finished.
        """
        step = self._newest()
        if step is None or step.launched_s is None:
            return None
        assert step.shape is not None  # `_newest` returns steps of the device only
        durations = self._durations.get(step.shape, ())
        if len(durations) < self._min_samples:
            return None
        return max(step.launched_s, self._device_free_s) + min(durations)

    def preparation_s(self) -> float:
        """Returns the time of a step from its order to its launch: upper quartile of the newest; 0 if unknown."""
        ordered = sorted(self._preparations)
        return ordered[3 * len(ordered) // 4] if ordered else 0.0

    def _newest(self) -> _StepInFlight[Shape] | None:
        return next((step for step in reversed(self._in_flight) if step.shape is not None), None)

    def _record(self, step: _StepInFlight[Shape], now_s: float, device_s: float | None) -> None:
        if step.shape is None:
            return
        if step.launched_s is not None:
            if device_s is None:
                device_s = now_s - max(step.launched_s, self._device_free_s)
            self._durations.setdefault(step.shape, deque(maxlen=_SHAPE_SAMPLES)).append(device_s)
        self._device_free_s = now_s


# When the scheduler orders the next step while one is under way: as late as its preparation allows, so that utterances
# and credit that arrive before the order are in it, and the process's other threads run meanwhile

ORDER_MARGIN_S = 0.0006
"""The wait ends this long before preparation has to begin, because an idle device delays every utterance."""
MAX_ORDER_WAIT_S = 0.02
MIN_SAMPLES = 4
"""Finished steps of a shape before the scheduler waits for one of that shape."""

StepShape = tuple[int, int]
"""Indices in GRAPH_SIZES of the graphs that hold a step's rows and its positions."""


def step_shape(rows: int, positions: int) -> StepShape:
    """Returns the shape of a step of `rows` requests and `positions` positions, of prompts and frames together."""
    return bisect.bisect_left(GRAPH_SIZES, rows), bisect.bisect_left(GRAPH_SIZES, positions)


def step_end_s(timer: StepTimer[StepShape]) -> float:
    """Returns when the only step in flight will end at the earliest; 0 for more than one, or if that is unknown."""
    return (timer.expected_end_s() if timer.in_flight == 1 else None) or 0.0


def order_wait_s(timer: StepTimer[StepShape], now_s: float) -> float:
    """Returns how long the next order can wait; 0 unless exactly one step is in flight and its end can be expected."""
    return min(max(0.0, step_end_s(timer) - timer.preparation_s() - ORDER_MARGIN_S - now_s), MAX_ORDER_WAIT_S)
