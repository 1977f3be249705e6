"""Results of utterances and of whole steps, and the objectives that a step has to meet."""

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
MAX_CLIENT_LAG_MS = 20
MAX_LATE_START_MS = 100
"""Figures of a client that is later than these, at the 99th percentile, are not trustworthy."""


class ClientBehaviour(StrEnum):
    """What a virtual user does with the audio."""

    PLAIN = "plain"
    """Plays it to the end."""
    BARGE_IN = "barge_in"
    """Interrupts the speech."""
    SLOW = "slow"
    """Stops reading for a while."""
    ABRUPT = "abrupt"
    """Cuts the connection without closing it."""


class Outcome(StrEnum):
    DONE = "done"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"
    """The virtual user cut the connection, as planned."""
    REFUSED = "refused"
    """The server refused the utterance; `code` has its reason."""
    FAILED = "failed"


@dataclass(slots=True)
class UtteranceResult:
    """Measurements of one utterance. Times are None where the utterance did not get so far."""

    stream: int
    behaviour: ClientBehaviour = ClientBehaviour.PLAIN
    outcome: Outcome = Outcome.FAILED
    code: str = ""
    late_ms: float = 0.0
    """Delay of the client's start behind the plan, caused by the client's machine."""
    connect_ms: float | None = None
    first_byte_ms: float | None = None
    """From the first text to the first audio."""
    first_audible_ms: float | None = None
    """From the first text to the first sample that is not silence, for a player without a buffer."""
    after_sentence_ms: float | None = None
    """From the end of the first sentence to the first audio; negative when speech began earlier."""
    queue_ms: float | None = None
    server_ms: float | None = None
    """From the first text to the first audio, as reported by the server."""
    cancel_ms: float | None = None
    """From the interrupt to the server's confirmation."""
    gaps_ms: list[float] = field(default_factory=list)
    """Between consecutive messages with audio."""
    underruns: dict[int, int] = field(default_factory=dict)
    """By start buffer in milliseconds."""
    audio_s: float = 0.0
    receiving_s: float = 0.0
    """From the first audio to the last."""

    @property
    def played(self) -> bool:
        """Whether the audio was played as it came to the end, so that its gaps are the server's."""
        return self.outcome is Outcome.DONE and self.behaviour is not ClientBehaviour.SLOW

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> UtteranceResult:
        """The inverse of `to_json`, whose keys are text."""
        underruns = {int(buffer_ms): count for buffer_ms, count in fields["underruns"].items()}
        behaviour, outcome = ClientBehaviour(fields["behaviour"]), Outcome(fields["outcome"])
        return cls(**{**fields, "behaviour": behaviour, "outcome": outcome, "underruns": underruns})


@dataclass(slots=True)
class StepResult:
    """Everything that the client processes of one step have reported."""

    results: list[UtteranceResult] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    """Lags of the clients' event loops."""
    client_cpu_s: float = 0.0
    seconds: float = 0.0
    """From the beginning to the last result."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of one figure; NaN where nothing was measured."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Percentiles:
        known = sorted(value for value in values if value is not None)
        return cls(len(known), *(percentile(known, q) for q in (0.50, 0.95, 0.99, 1.0)))


def percentile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least the share `q` of `ordered` (ascending) does not exceed; NaN for no values."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of one step; times in milliseconds."""

    load: str
    """Name of the step: "8 streams" or "2.5/s"."""
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
    """Time to first audio as reported by the server."""
    gap: Percentiles
    cancel: Percentiles
    played: int
    """Utterances that were played to the end; the next two figures are of these."""
    utterances_with_underruns: dict[int, int]
    """By start buffer in milliseconds."""
    underruns: dict[int, int]
    audio_s: float
    audio_per_s: float
    """Seconds of audio received per second of the step."""
    client_cpu_s: float
    client_lag_p99_ms: float
    late_p99_ms: float
    server_cores: float | None = None
    server_memory_mb: float | None = None

    @property
    def trustworthy(self) -> bool:
        """Whether the client kept time; otherwise the figures describe a busy client."""
        return not (self.client_lag_p99_ms > MAX_CLIENT_LAG_MS or self.late_p99_ms > MAX_LATE_START_MS)


def summarise_step(
    load: str, size: float, step: StepResult, server_cores: float | None = None, server_memory_mb: float | None = None
) -> StepFigures:
    results = step.results
    played = [result for result in results if result.played]
    audio_s = sum(result.audio_s for result in results)
    return StepFigures(
        load=load,
        size=size,
        utterances=len(results),
        outcomes=dict(Counter(result.outcome.value for result in results)),
        refused=_codes(results, Outcome.REFUSED),
        failed=_codes(results, Outcome.FAILED),
        connect=_percentiles(results, lambda result: result.connect_ms),
        first_byte=_percentiles(results, lambda result: result.first_byte_ms),
        first_audible=_percentiles(results, lambda result: result.first_audible_ms),
        after_sentence=_percentiles(results, lambda result: result.after_sentence_ms),
        queue=_percentiles(results, lambda result: result.queue_ms),
        server=_percentiles(results, lambda result: result.server_ms),
        gap=Percentiles.of(gap for result in played for gap in result.gaps_ms),
        cancel=_percentiles(results, lambda result: result.cancel_ms),
        played=len(played),
        utterances_with_underruns={ms: sum(result.underruns.get(ms, 0) > 0 for result in played) for ms in BUFFERS_MS},
        underruns={ms: sum(result.underruns.get(ms, 0) for result in played) for ms in BUFFERS_MS},
        audio_s=audio_s,
        audio_per_s=audio_s / step.seconds if step.seconds else 0.0,
        client_cpu_s=step.client_cpu_s,
        client_lag_p99_ms=percentile(sorted(step.lags_ms), 0.99) if step.lags_ms else 0.0,
        late_p99_ms=percentile(sorted(result.late_ms for result in results), 0.99) if results else 0.0,
        server_cores=server_cores,
        server_memory_mb=server_memory_mb,
    )


def _percentiles(results: Sequence[UtteranceResult], figure: Callable[[UtteranceResult], float | None]) -> Percentiles:
    return Percentiles.of(figure(result) for result in results)


def _codes(results: Sequence[UtteranceResult], outcome: Outcome) -> dict[str, int]:
    return dict(Counter(result.code for result in results if result.outcome is outcome))


@dataclass(frozen=True, slots=True)
class Slo:
    """Service level objectives of a step: nothing is refused or fails, no underrun, early first audio."""

    buffer_ms: int = 200
    first_audio_p95_ms: float = 500.0

    def violation(self, step: StepFigures) -> str | None:
        """The objective that the step violates; None when it passes."""
        if step.refused:
            return "refused: " + ", ".join(f"{count} {code}" for code, count in step.refused.items())
        if step.failed:
            return "failed: " + ", ".join(f"{count} {code}" for code, count in step.failed.items())
        if not step.played:
            return "no utterance was played to the end"
        if count := step.utterances_with_underruns[self.buffer_ms]:
            return f"{count} of {step.played} with underruns at {self.buffer_ms} ms"
        if step.first_byte.p95 > self.first_audio_p95_ms:
            return f"p95 time to first audio {step.first_byte.p95:.0f} ms"
        return None


def to_json(document: Mapping[str, Any]) -> str:
    """JSON with null for NaN, which JSON lacks."""
    return json.dumps({name: _without_nan(value) for name, value in document.items()}, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
