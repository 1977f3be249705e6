from __future__ import annotations

import math

import pytest
import torch
from voxgate.benchmarks.codec import CodecTiming, bench_codec, timing_table
from voxgate.benchmarks.overlap_error import overlap_snr_db, snr_table
from voxgate.codecs.neural.decoder import CodecDecoder

from .conftest import DEMO, random_codes


def test_error_falls_with_left_context_down_to_rounding(demo: CodecDecoder) -> None:
    exact = demo.config.exact_left_context
    utterances = list(random_codes(demo, rows=1, frames=exact + 8))
    none, some, enough = (overlap_snr_db(demo, utterances, context, 22) for context in (0, 20, exact))
    assert none + 10 < some < enough - 10
    assert enough > 100


def test_error_table_has_a_row_per_context(small: CodecDecoder) -> None:
    table = snr_table(small, list(random_codes(small, rows=1, frames=4)), [0, 30], [2, 4])
    head, rule, none, enough = table.splitlines()
    assert head.count("|") == rule.count("|") == none.count("|") == enough.count("|") == 4
    assert enough.startswith("| 30 |")


@pytest.mark.parametrize("mode", ["stateful", "overlap"])
def test_every_shape_is_timed(mode: str) -> None:
    timings = bench_codec(
        DEMO, [(1, 1), (2, 2)], codec_mode="overlap" if mode == "overlap" else "stateful", left_context=2, rounds=1
    )
    assert [(timing.rows, timing.frames) for timing in timings] == [(1, 1), (2, 2)]
    assert all(timing.batch_ms > 0 for timing in timings)
    assert torch.get_num_threads() == 1


def test_timing_table_shows_times_and_ratios() -> None:
    one, many = CodecTiming(1, 1, batch_ms=10.0), CodecTiming(4, 2, batch_ms=40.0)
    assert math.isclose(many.frame_ms, 5.0)
    assert math.isclose(many.streams, 16.0)
    assert timing_table([one, many]).splitlines()[-1] == "| 4 | 2 | 40.0 | 5.00 | 0.50 | 16.0 |"
