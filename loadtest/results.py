"""What one utterance under load came to, as it travels between processes and into the file of results."""
# TODO-DOC From samples to the figures of a step.

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BUFFERS_MS = (0, 80, 200)
"""Start buffers of the simulated players."""


class ClientBehaviour(StrEnum):
    """How a listener behaves."""

    PLAIN = "plain"
    BARGE_IN = "barge_in"
    """Interrupts in mid-speech."""
    SLOW = "slow"
    """Stops reading for a while."""
    ABRUPT = "abrupt"
    """Cuts the connection without a word."""


class Outcome(StrEnum):
    DONE = "done"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"
    """Cut by the listener himself, as planned."""
    REFUSED = "refused"
    """The server said, in its own words, that it would not; `code` is the reason."""
    FAILED = "failed"


@dataclass(slots=True)
class UtteranceResult:
    """Times in milliseconds; None where it did not come so far. `underruns` by start buffer."""

    stream: int
    behaviour: ClientBehaviour = ClientBehaviour.PLAIN
    outcome: Outcome = Outcome.FAILED
    code: str = ""
    late_ms: float = 0.0
    """How much later than intended the client began; the fault of the client's machine."""
    connect_ms: float | None = None
    first_byte_ms: float | None = None
    """From the first text to the first audio."""
    first_audible_ms: float | None = None
    """From the first text to the first sound that is not silence, for a player without a buffer."""
    after_sentence_ms: float | None = None
    """From the end of the first sentence to the first audio; negative when speech began before it."""
    queue_ms: float | None = None
    server_ms: float | None = None
    """From the first text to the first audio, as the server saw it."""
    cancel_ms: float | None = None
    """From the interrupt to the server's word that nothing more comes."""
    gaps_ms: list[float] = field(default_factory=list)
    """Between messages with audio."""
    underruns: dict[int, int] = field(default_factory=dict)
    audio_s: float = 0.0
    playing_s: float = 0.0
    """From the first audio to the last."""

    @property
    def listened(self) -> bool:
        """It was played as it came, so that its gaps are the server's."""
        return self.outcome is Outcome.DONE and self.behaviour is not ClientBehaviour.SLOW

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> UtteranceResult:
        underruns = {int(buffer_ms): count for buffer_ms, count in fields["underruns"].items()}
        behaviour, outcome = ClientBehaviour(fields["behaviour"]), Outcome(fields["outcome"])
        return cls(**{**fields, "behaviour": behaviour, "outcome": outcome, "underruns": underruns})


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of one figure; NaN when there was nothing to measure."""

    count: int
    p50: float
    p95: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Percentiles:
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
    connect: Percentiles
    first_byte: Percentiles
    first_audible: Percentiles
    after_sentence: Percentiles
    queue: Percentiles
    server: Percentiles
    """First audio as the server saw it."""
    gap: Percentiles
    cancel: Percentiles
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
class Slo:
    """What a step has to reach to count as carried."""

    buffer_ms: int = 200
    first_audio_p95_ms: float = 500.0

    def verdict(self, step: StepFigures) -> str | None:
        """Why the step is over the slo; None when it is carried."""
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
        gap=Percentiles.of(gaps),
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


def _spread(samples: Sequence[UtteranceResult], figure: Callable[[UtteranceResult], float | None]) -> Percentiles:
    return Percentiles.of(figure(sample) for sample in samples)


def _codes(samples: Sequence[UtteranceResult], outcome: Outcome) -> dict[str, int]:
    return dict(Counter(sample.code for sample in samples if sample.outcome is outcome))


@dataclass(slots=True)
class StepResult:
    """Everything that one step's listeners reported."""

    samples: list[UtteranceResult] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    """How late the clients' own event loops were."""
    client_cpu_s: float = 0.0
    seconds: float = 0.0
    """From the beginning to the last sample."""
