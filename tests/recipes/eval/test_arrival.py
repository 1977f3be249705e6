"""Figures for text that arrives word by word."""

from __future__ import annotations

import numpy as np
import pytest
from eval.arrival import figures, long_lines, waits_s
from eval.plan import EvaluationText
from eval.session import SynthesizedUtterance


def test_frames_in_time_cause_no_wait() -> None:
    assert waits_s([0.2, 0.2, 0.3, 0.41, 0.52]) == []


def test_late_frame_delays_later_frames() -> None:
    assert waits_s([0.0, 0.5, 0.5, 0.6, 1.0]) == pytest.approx([0.42, 0.26])


def test_no_frames_cause_no_wait() -> None:
    assert waits_s([]) == []


def test_heard_rate_includes_waits() -> None:
    line = EvaluationText("sentences", "One two three four.", "one two three four.")
    pcm = np.full(24_000 * 2 // 5, 0.1, np.float32)
    row = figures(3.0, [line], [SynthesizedUtterance(pcm, True, [0.5, 0.5, 0.5, 1.14, 1.14])])
    assert row.speech_words_per_s == pytest.approx(4 / 0.4)
    assert row.heard_words_per_s == pytest.approx(4 / 0.8)
    assert (row.waits, row.wait_s, row.first_sound_s) == pytest.approx((1, 0.4, 0.5))


def test_lines_have_at_least_ten_words() -> None:
    lines = long_lines(24)
    assert len(lines) == 24
    assert all(len(line.words) >= 10 for line in lines)
