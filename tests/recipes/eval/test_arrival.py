from __future__ import annotations

import numpy as np
import pytest
from eval.arrival import figures, long_lines, waits_s
from eval.session import SynthesizedUtterance
from eval.texts import EvaluationText


def test_frames_that_come_in_time_let_nobody_wait() -> None:
    assert waits_s([0.2, 0.2, 0.3, 0.41, 0.52]) == []


def test_a_late_frame_is_waited_for_and_those_behind_it_are_not() -> None:
    assert waits_s([0.0, 0.5, 0.5, 0.6, 1.0]) == pytest.approx([0.42, 0.26])


def test_nothing_was_said() -> None:
    assert waits_s([]) == []


def test_what_is_heard_is_as_much_slower_as_the_waits_are_long() -> None:
    line = EvaluationText("sentences", "One two three four.", "one two three four.")
    pcm = np.full(24_000 * 2 // 5, 0.1, np.float32)
    row = figures(3.0, [line], [SynthesizedUtterance(pcm, True, [0.5, 0.5, 0.5, 1.14, 1.14])])
    assert row.in_sound == pytest.approx(4 / 0.4)
    assert row.heard == pytest.approx(4 / 0.8)
    assert (row.waits, row.wait_s, row.first_sound_s) == pytest.approx((1, 0.4, 0.5))


def test_lines_are_long_enough_for_a_pace_to_be_felt() -> None:
    lines = long_lines(24)
    assert len(lines) == 24
    assert all(len(line.words) >= 10 for line in lines)
