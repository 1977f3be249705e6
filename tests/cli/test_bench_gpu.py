"""`voxgate bench gpu`: its checkpoints, quantiles, table and plot; the measuring itself needs a GPU."""

from __future__ import annotations

import math
from xml.dom import minidom

import pytest
from voxgate.cli.bench_gpu import LoadRow, Report, SizeResult, quantiles, step_plot, table
from voxgate.cli.random_checkpoint import talker_shapes


@pytest.mark.parametrize(("size", "tensors", "parameters"), [("0.6B", 402, 905_788_672), ("1.7B", 404, 1_916_676_352)])
def test_random_checkpoints_are_as_large_as_the_published_ones(size: str, tensors: int, parameters: int) -> None:
    shapes = dict(talker_shapes(size))
    assert len(shapes) == tensors
    assert sum(math.prod(shape) for shape in shapes.values()) == parameters


def test_quantiles_of_many_and_of_few() -> None:
    assert quantiles([float(n) for n in range(1, 101)]) == {"p50": 51.0, "p95": 96.0, "p99": 100.0, "max": 100.0}
    assert quantiles([3.0]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert quantiles([]) == {}


@pytest.fixture
def result() -> SizeResult:
    parts = {"talker": {"start_s": 30.0, "1": 3.9, "8": 4.5}, "predictor": {"1": 1.6, "8": 2.1}, "codec": None}
    good = LoadRow("10/s", 99, 0, {"p50": 20.0, "p95": 40.0, "p99": 50.0}, underruns={"0": 2, "80": 1, "200": 0})
    return SizeResult("1.7B", parts, 44.0, 1000, [good, LoadRow("60/s", 5, 5)])


def test_the_table_shows_parts_loads_and_what_failed(result: SizeResult) -> None:
    lines = table(Report("a GPU", "2026-01-02", "bench gpu", [result]))
    assert "- talker, ms: start_s: 30.0, 1: 3.9, 8: 4.5" in lines
    assert "- codec, ms: failed" in lines
    assert "| 10/s | 99 | 0 | 20.0 / 40.0 / 50.0 | 2 / 1 / 0 | 0.0 | 0.0 |" in lines
    assert "| 60/s | 5 | 5 | - / - / - |  | 0.0 | 0.0 |" in lines


def test_the_plot_is_a_drawing_of_the_parts_that_were_measured(result: SizeResult) -> None:
    drawing = minidom.parseString(step_plot(result))
    assert len(drawing.getElementsByTagName("polyline")) == 2
    assert "start_s" not in drawing.toxml()
