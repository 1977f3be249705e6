"""Reports of a load test: progress and a table in the terminal, and a self-contained HTML page with plots."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from .plots import line_plot
from .results import BUFFERS_MS, Outcome, Percentiles, Slo, StepFigures, UtteranceResult

_REDRAW_S = 0.5


class ProgressLine:
    """Progress of a step on standard error: a line that is overwritten on a terminal, else only the step's end."""

    def __init__(self, load: str) -> None:
        self._load = load
        self._counts = dict.fromkeys(Outcome, 0)
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._live = sys.stderr.isatty()

    def count(self, result: UtteranceResult) -> None:
        self._counts[result.outcome] += 1
        now_s = time.monotonic()
        if self._live and now_s - self._drawn_s > _REDRAW_S:
            self._drawn_s = now_s
            counted = ", ".join(f"{count} {outcome}" for outcome, count in self._counts.items() if count)
            self._write(f"{self._load}: {now_s - self._began_s:.0f} s, {counted}", end="")

    def end(self, violation: str | None) -> None:
        self._write(f"{self._load}: {'passed' if violation is None else violation}", end="\n")

    def _write(self, text: str, end: str) -> None:
        print(f"\r\033[Kbench: {text}" if self._live else f"bench: {text}", file=sys.stderr, end=end, flush=True)


def summary(steps: Sequence[StepFigures], slo: Slo, capacity: int | None) -> str:
    """The test as text: a row for each step, notes, and the result of a search, `capacity`."""
    rows = [_HEADINGS, *(_row(step) for step in steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines += [note for step in steps for note in _notes(step)]
    if capacity is not None:
        lines += ["", f"{capacity} streams without an underrun {slo_text(slo)}"]
    return "\n".join(lines)


def slo_text(slo: Slo) -> str:
    return f"with {slo.buffer_ms} ms of buffer, first audio within {slo.first_audio_p95_ms:.0f} ms (p95)"


_HEADINGS = (
    "load",
    "utterances",
    "connect p95",
    "first audio p50/p95/p99",
    "audible p50/p95",
    "gap p99/max",
    "underruns at " + "/".join(map(str, BUFFERS_MS)) + " ms",
    "audio s/s",
    "refused",
    "failed",
    "cores",
)


def _row(step: StepFigures) -> tuple[str, ...]:
    return (
        step.load,
        str(step.utterances),
        join_ms(step.connect.p95),
        join_ms(step.first_byte.p50, step.first_byte.p95, step.first_byte.p99),
        join_ms(step.first_audible.p50, step.first_audible.p95),
        join_ms(step.gap.p99, step.gap.max),
        "/".join(str(step.utterances_with_underruns[buffer_ms]) for buffer_ms in BUFFERS_MS),
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
        notes.append(f"{step.load}: interrupts confirmed after {join_ms(step.cancel.p50, step.cancel.p95)} (p50/p95)")
    if not step.trustworthy:
        lag = f"event loop {step.client_lag_p99_ms:.0f} ms late, utterances {step.late_p99_ms:.0f} ms late at p99"
        notes.append(f"{step.load}: the client was overloaded ({lag}): use more --processes or machines")
    return notes


def join_ms(*values: float) -> str:
    """Figures of one kind, as "50/95 ms"; "-" where nothing was measured."""
    return "-" if math.isnan(values[0]) else "/".join(f"{value:.0f}" for value in values) + " ms"


def percentiles_text(percentiles: Percentiles) -> str:
    """p50, p95, p99 and maximum, for a table of details."""
    return join_ms(percentiles.p50, percentiles.p95, percentiles.p99, percentiles.max)


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ink: CanvasText }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.capacity { font-size: 2.4rem; font-weight: 600; line-height: 1 }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.plots { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)) }
figure { margin: 0 } figcaption { font-weight: 600 } figcaption small { font-weight: 400; opacity: .7 }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: var(--ink) }
.grid { stroke: var(--line) } .mark { stroke: #dc2626; stroke-dasharray: 5 4 }
ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; margin: 0; padding: 0 0 0 3.4rem }
li span { border-radius: 50%; display: inline-block; height: .6rem; margin-right: .35rem; width: .6rem }
.warn { border-left: 3px solid #d97706; padding-left: .7rem }
"""


def html_report(
    title: str, facts: Mapping[str, str], steps: Sequence[StepFigures], slo: Slo, capacity: int | None
) -> str:
    """The report as an HTML document. `facts` say what was tested and how, so that the test can be repeated."""
    ordered = sorted(steps, key=lambda step: step.size)
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if capacity is not None:
        parts.append(
            f'<p><span class="capacity">{capacity}</span> streams without an underrun {html.escape(slo_text(slo))}</p>'
        )
    parts.append(_table(("", ""), [(name, value) for name, value in facts.items()]))
    parts += [
        f'<p class="warn">{html.escape(step.load)}: the client was overloaded; its figures are not trustworthy.</p>'
        for step in steps
        if not step.trustworthy
    ]
    parts.append(f'<h2>Plots</h2><div class="plots">{"".join(_plots(ordered, slo))}</div>')
    parts.append("<h2>Steps</h2>" + _table(tuple(_COLUMNS), [_cells(step, slo) for step in steps]))
    parts.append(f"<p>Times are p50/p95/p99/maximum. {_EXPLANATION}</p>")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


_EXPLANATION = (
    "First audio is measured from the first text sent; audible is the first sample that is not silence. Underruns are"
    " utterances whose player, with the given start buffer, had nothing to play at least once; virtual users that read"
    " slowly, interrupt or leave on purpose are not counted. Cancel is from the interrupt to the server's confirmation."
)
_COLUMNS = (
    "load",
    "result",
    "utterances",
    "outcomes",
    "connect",
    "first audio",
    "audible",
    "after 1st sentence",
    "queue",
    "gap",
    "cancel",
    *(f"underruns at {buffer_ms} ms" for buffer_ms in BUFFERS_MS),
    "audio s/s",
    "server cores",
    "server MB",
)


def _cells(step: StepFigures, slo: Slo) -> tuple[str, ...]:
    return (
        step.load,
        slo.violation(step) or "passed",
        str(step.utterances),
        ", ".join(f"{count} {outcome}" for outcome, count in step.outcomes.items()),
        *(
            percentiles_text(percentiles)
            for percentiles in (step.connect, step.first_byte, step.first_audible, step.after_sentence)
        ),
        *(percentiles_text(percentiles) for percentiles in (step.queue, step.gap, step.cancel)),
        *(f"{step.utterances_with_underruns[buffer_ms]} of {step.played}" for buffer_ms in BUFFERS_MS),
        f"{step.audio_per_s:.2f}",
        "-" if step.server_cores is None else f"{step.server_cores:.2f}",
        "-" if step.server_memory_mb is None else f"{step.server_memory_mb:.0f}",
    )


def _plots(steps: Sequence[StepFigures], slo: Slo) -> list[str]:
    x = "streams" if steps and "stream" in steps[0].load else "utterances per second"

    def against(figure: Callable[[StepFigures], float]) -> list[tuple[float, float]]:
        return [(step.size, figure(step)) for step in steps]

    first_audio = {
        "p50": against(lambda step: step.first_byte.p50),
        "p95": against(lambda step: step.first_byte.p95),
        "audible, p95": against(lambda step: step.first_audible.p95),
    }
    gaps = {"p99": against(lambda step: step.gap.p99), "maximum": against(lambda step: step.gap.max)}
    underruns = {
        f"{buffer_ms} ms": [
            (step.size, 100 * step.utterances_with_underruns[buffer_ms] / max(1, step.played)) for step in steps
        ]
        for buffer_ms in BUFFERS_MS
    }
    refused = against(lambda step: 100 * sum(step.refused.values()) / max(1, step.utterances))
    return [
        line_plot("Time to first audio", x, "ms", first_audio, slo.first_audio_p95_ms),
        line_plot("Utterances with an underrun", x, "% by start buffer", underruns),
        line_plot("Gap between messages", x, "ms", gaps),
        line_plot("Refused", x, "% of utterances", {"refused": refused}),
        line_plot("Audio", x, "seconds per second", {"received": against(lambda step: step.audio_per_s)}),
    ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(headings) else ''}<tbody>{body}</tbody></table>"
