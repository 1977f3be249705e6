from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from voxgate.loadtest.plots import line_plot
from voxgate.loadtest.report import html_report, summary
from voxgate.loadtest.results import (
    ClientBehaviour,
    Outcome,
    Percentiles,
    Slo,
    StepFigures,
    StepResult,
    UtteranceResult,
    percentile,
    summarise_step,
    to_json,
)


def result(first_ms: float = 60.0, **fields: Any) -> UtteranceResult:
    defaults = {"outcome": Outcome.DONE, "underruns": {0: 0, 80: 0, 200: 0}, "audio_s": 5.0, "gaps_ms": [80.0, 90.0]}
    return UtteranceResult(
        0, first_byte_ms=first_ms, first_audible_ms=first_ms + 20, connect_ms=2.0, **{**defaults, **fields}
    )


def step(*results: UtteranceResult, load: str = "4 streams", size: float = 4, **result: Any) -> StepFigures:
    return summarise_step(load, size, StepResult(list(results), seconds=10.0, **result), 1.25, 900.0)


def test_percentiles_are_measured_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, q) for q in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0
    assert math.isnan(percentile([], 0.5))
    assert Percentiles.of([3.0, None, 1.0]).count == 2


def test_step_figures_summarise_results() -> None:
    uneven = result(80.0, underruns={0: 2, 80: 1, 200: 0})
    slow = result(behaviour=ClientBehaviour.SLOW, underruns={0: 9, 80: 9, 200: 9})
    cut = UtteranceResult(0, ClientBehaviour.BARGE_IN, Outcome.INTERRUPTED, audio_s=1.0, cancel_ms=12.0)
    turned = UtteranceResult(0, outcome=Outcome.REFUSED, code="at_capacity")
    seen = step(result(), uneven, slow, cut, turned)
    assert (seen.utterances, seen.played) == (5, 2)
    assert (seen.utterances_with_underruns, seen.underruns[0]) == ({0: 1, 80: 1, 200: 0}, 2)
    assert seen.refused == {"at_capacity": 1}
    assert seen.audio_per_s == pytest.approx(1.6)
    assert seen.cancel.max == 12.0
    assert seen.first_byte.p95 == 80.0


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([result()], None),
        ([result(), result(underruns={0: 1, 80: 1, 200: 0})], None),
        ([result(), result(underruns={0: 1, 80: 1, 200: 1})], "1 of 2 with underruns at 200 ms"),
        ([result(900.0)], "p95 time to first audio 900 ms"),
        ([result(), UtteranceResult(0, outcome=Outcome.REFUSED, code="draining")], "refused: 1 draining"),
        ([result(), UtteranceResult(0, code="timeout")], "failed: 1 timeout"),
        ([], "no utterance was played to the end"),
    ],
)
def test_verdict_names_the_violated_objective(results: list[UtteranceResult], why: str | None) -> None:
    assert Slo().violation(step(*results)) == why


def test_overloaded_client_is_not_trustworthy() -> None:
    late = step(result(), lags_ms=[1.0] * 90 + [45.0] * 10)
    assert not late.trustworthy
    assert "was overloaded" in summary([late], Slo(), None)
    assert step(result(), lags_ms=[1.0]).trustworthy


def test_result_survives_its_encoding() -> None:
    measured = result(underruns={80: 2}, behaviour=ClientBehaviour.SLOW)
    assert UtteranceResult.from_fields(json.loads(measured.to_json())) == measured


def test_results_are_json_without_nan() -> None:
    line = to_json({"step": "x", "first": {"p50": math.nan, "count": 0}, "gaps": [1.0]})
    assert json.loads(line) == {"step": "x", "first": {"p50": None, "count": 0}, "gaps": [1.0]}


def test_summary_names_every_step_and_the_maximum() -> None:
    text = summary([step(result()), step(result(70.0), load="8 streams", size=8)], Slo(), 8)
    assert "4 streams" in text
    assert "8 streams without an underrun with 200 ms of buffer, first audio within 500 ms (p95)" in text


class Page(HTMLParser):
    """Counts tags and finds what an offline reader would miss."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]


def test_html_report_is_one_file_with_plots() -> None:
    steps = [step(result()), step(result(600.0), load="8 streams", size=8)]
    page = Page()
    text = html_report("voxgate <under> load", {"server": "http://x/?a=1&b=2"}, steps, Slo(), 8)
    page.feed(text)
    assert page.outside == []
    assert page.tags.count("svg") == 5
    assert page.tags.count("tr") == 1 + 1 + len(steps)
    assert "&lt;under&gt;" in text
    assert "a=1&amp;b=2" in text
    assert not re.search(r"\bnan\b", text)


def test_plot_scales_its_points() -> None:
    svg = line_plot("T", "x", "y", {"a": [(1, 0.0), (3, 10.0), (2, math.nan)]}, mark_y=5)
    (points,) = re.findall(r'points="([^"]+)"', svg)
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in points.split())
    assert x1 < x2
    assert y1 > y2, "more is higher up"
    assert 'class="mark"' in svg
    assert line_plot("T", "x", "y", {"a": [(1, math.nan)]}) == ""
