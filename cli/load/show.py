"""A load test in a terminal: progress while it runs, a table when it is over."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

from .sample import BUFFERS_MS, Outcome, Sample
from .stats import Bar, Spread, StepFigures

_REDRAW_S = 0.5


class Progress:
    """One line on standard error that is written over; in a file or a pipe nothing but the steps' ends."""

    def __init__(self, load: str) -> None:
        self._load = load
        self._counts = dict.fromkeys(Outcome, 0)
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._live = sys.stderr.isatty()

    def count(self, sample: Sample) -> None:
        self._counts[sample.outcome] += 1
        now_s = time.monotonic()
        if self._live and now_s - self._drawn_s > _REDRAW_S:
            self._drawn_s = now_s
            counted = ", ".join(f"{count} {outcome}" for outcome, count in self._counts.items() if count)
            self._write(f"{self._load}: {now_s - self._began_s:.0f} s, {counted}", end="")

    def end(self, verdict: str | None) -> None:
        self._write(f"{self._load}: {'carried' if verdict is None else verdict}", end="\n")

    def _write(self, text: str, end: str) -> None:
        print(f"\r\033[Kbench: {text}" if self._live else f"bench: {text}", file=sys.stderr, end=end, flush=True)


def summary(steps: Sequence[StepFigures], bar: Bar, most: int | None) -> str:
    """The whole test as text: a row for each step, and the one number."""
    rows = [_HEADINGS, *(_row(step) for step in steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines += [note for step in steps for note in _notes(step)]
    if most is not None:
        lines += ["", f"{most} streams without an underrun {bar_text(bar)}"]
    return "\n".join(lines)


def bar_text(bar: Bar) -> str:
    return f"at {bar.buffer_ms} ms of buffer, first audio in {bar.first_audio_p95_ms:.0f} ms (p95)"


_HEADINGS = (
    "load",
    "utterances",
    "connect p95",
    "first audio p50/p95/p99",
    "audible p50/p95",
    "gap p99/max",
    "uneven at " + "/".join(map(str, BUFFERS_MS)),
    "audio s/s",
    "refused",
    "failed",
    "cores",
)


def _row(step: StepFigures) -> tuple[str, ...]:
    return (
        step.load,
        str(step.utterances),
        ms(step.connect.p95),
        _together(step.first_byte.p50, step.first_byte.p95, step.first_byte.p99),
        _together(step.first_audible.p50, step.first_audible.p95),
        _together(step.gap.p99, step.gap.most),
        "/".join(str(step.uneven[buffer_ms]) for buffer_ms in BUFFERS_MS),
        f"{step.audio_per_s:.1f}",
        str(sum(step.refused.values())),
        str(sum(step.failed.values())),
        "-" if step.server_cores is None else f"{step.server_cores:.2f}",
    )


def _notes(step: StepFigures) -> list[str]:
    notes = []
    for kind, counts in (("refused", step.refused), ("failed", step.failed)):
        if counts:
            notes.append(f"{step.load}: {kind} " + ", ".join(f"{count} {code}" for code, count in counts.items()))
    if step.cancel.count:
        notes.append(f"{step.load}: silent {_together(step.cancel.p50, step.cancel.p95)} after an interrupt (p50/p95)")
    if not step.trustworthy:
        lag = f"event loop {step.client_lag_p99_ms:.0f} ms late, turns {step.late_p99_ms:.0f} ms late at p99"
        notes.append(f"{step.load}: the client itself could not keep time ({lag}): use more --processes or machines")
    return notes


def ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f} ms"


def _together(*values: float) -> str:
    return "-" if math.isnan(values[0]) else "/".join(f"{value:.0f}" for value in values) + " ms"


def spread_text(spread: Spread) -> str:
    """p50, p95, p99 and most, for a table of details."""
    return _together(spread.p50, spread.p95, spread.p99, spread.most)
