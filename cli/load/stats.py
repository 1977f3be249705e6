"""From samples to the figures of a step."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .processes import StepResult
from .sample import BUFFERS_MS, Outcome, Sample


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of one figure; NaN when there was nothing to measure."""

    count: int
    p50: float
    p95: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread:
        known = sorted(value for value in values if value is not None)
        return cls(len(known), *(percentile(known, q) for q in (0.50, 0.95, 0.99, 1.0)))


def percentile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least `q` of `ordered` (ascending) do not exceed; NaN for none."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def to_json(document: Mapping[str, Any]) -> str:
    """As JSON, which has no NaN: what could not be measured is null."""
    return json.dumps({name: _known(value) for name, value in document.items()}, allow_nan=False)


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step. Times in milliseconds; `uneven`: streams with any underrun, by start buffer."""

    load: str
    """ "8 streams" or "2.5/s"."""
    size: float
    utterances: int
    outcomes: dict[str, int]
    refused: dict[str, int]
    failed: dict[str, int]
    connect: Spread
    first_byte: Spread
    first_audible: Spread
    after_sentence: Spread
    queue: Spread
    server: Spread
    """First audio as the server saw it."""
    gap: Spread
    cancel: Spread
    listened: int
    uneven: dict[int, int]
    underruns: dict[int, int]
    audio_s: float
    audio_per_s: float
    """Seconds of audio that arrived in a second of the step."""
    client_lag_p99_ms: float
    late_p99_ms: float
    server_cores: float | None = None
    server_memory_mb: float | None = None

    @property
    def trustworthy(self) -> bool:
        """The client kept time itself; otherwise the figures are those of a busy client."""
        return not (self.client_lag_p99_ms > 20 or self.late_p99_ms > 100)


@dataclass(frozen=True, slots=True)
class Bar:
    """What a step has to reach to count as carried."""

    buffer_ms: int = 200
    first_audio_p95_ms: float = 500.0

    def verdict(self, step: StepFigures) -> str | None:
        """Why the step is over the bar; None when it is carried."""
        if step.refused:
            return "refused: " + ", ".join(f"{count} {code}" for code, count in step.refused.items())
        if step.failed:
            return "failed: " + ", ".join(f"{count} {code}" for code, count in step.failed.items())
        if not step.listened:
            return "nobody listened to the end"
        if uneven := step.uneven[self.buffer_ms]:
            return f"{uneven} of {step.listened} with underruns at {self.buffer_ms} ms"
        if step.first_byte.p95 > self.first_audio_p95_ms:
            return f"p95 time to first audio {step.first_byte.p95:.0f} ms"
        return None


def figures(load: str, size: float, result: StepResult, server: tuple[float, float] | None = None) -> StepFigures:
    """`server`: cores used and memory in MB, where they could be seen."""
    samples = result.samples
    listened = [sample for sample in samples if sample.listened]
    gaps = [gap for sample in listened for gap in sample.gaps_ms]
    ends = Counter(sample.outcome.value for sample in samples)
    audio_s = sum(sample.audio_s for sample in samples)
    return StepFigures(
        load=load,
        size=size,
        utterances=len(samples),
        outcomes=dict(ends),
        refused=_codes(samples, Outcome.REFUSED),
        failed=_codes(samples, Outcome.FAILED),
        connect=_spread(samples, lambda sample: sample.connect_ms),
        first_byte=_spread(samples, lambda sample: sample.first_byte_ms),
        first_audible=_spread(samples, lambda sample: sample.first_audible_ms),
        after_sentence=_spread(samples, lambda sample: sample.after_sentence_ms),
        queue=_spread(samples, lambda sample: sample.queue_ms),
        server=_spread(samples, lambda sample: sample.server_ms),
        gap=Spread.of(gaps),
        cancel=_spread(samples, lambda sample: sample.cancel_ms),
        listened=len(listened),
        uneven={ms: sum(sample.underruns.get(ms, 0) > 0 for sample in listened) for ms in BUFFERS_MS},
        underruns={ms: sum(sample.underruns.get(ms, 0) for sample in listened) for ms in BUFFERS_MS},
        audio_s=audio_s,
        audio_per_s=audio_s / result.seconds if result.seconds else 0.0,
        client_lag_p99_ms=percentile(sorted(result.lags_ms), 0.99) if result.lags_ms else 0.0,
        late_p99_ms=percentile(sorted(sample.late_ms for sample in samples), 0.99) if samples else 0.0,
        server_cores=None if server is None else server[0],
        server_memory_mb=None if server is None else server[1],
    )


def _spread(samples: Sequence[Sample], figure: Callable[[Sample], float | None]) -> Spread:
    return Spread.of(figure(sample) for sample in samples)


def _codes(samples: Sequence[Sample], outcome: Outcome) -> dict[str, int]:
    return dict(Counter(sample.code for sample in samples if sample.outcome is outcome))
