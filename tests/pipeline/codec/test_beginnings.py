"""When an utterance begins: from its announcement until its first frame is decoded, for a bounded time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from voxgate.pipeline.codec.beginnings import EXPECTED_S, FIRST_FRAME_S, Beginnings


@pytest.fixture
def beginnings() -> Beginnings:
    return Beginnings()


def test_utterance_begins_until_its_first_frame_is_decoded(beginnings: Beginnings) -> None:
    assert not beginnings.under_way(5.0)
    beginnings.begin(5.0)
    assert beginnings.under_way(5.0)
    assert beginnings.under_way(5.004)
    beginnings.end(5.0)
    assert not beginnings.under_way(5.004)


def test_newest_of_several_counts(beginnings: Beginnings) -> None:
    beginnings.begin(5.0)
    beginnings.begin(5.002)
    beginnings.end(5.0)
    assert beginnings.under_way(5.003)
    beginnings.end(5.002)
    assert not beginnings.under_way(5.003)


def test_late_end_of_an_older_step_counts_for_nothing(beginnings: Beginnings) -> None:
    beginnings.begin(5.0)
    beginnings.begin(5.003)
    beginnings.end(5.003)
    beginnings.end(5.0)
    assert not beginnings.under_way(5.004)


def test_step_that_never_ends_counts_for_a_bounded_time(beginnings: Beginnings) -> None:
    beginnings.begin(5.0)
    assert beginnings.under_way(4.999 + FIRST_FRAME_S)
    assert not beginnings.under_way(5.001 + FIRST_FRAME_S)


def test_expected_utterance_counts_for_a_bounded_time(beginnings: Beginnings) -> None:
    beginnings.expected_s = np.array([3.0, 5.0, 0.0])
    assert not beginnings.under_way(4.999)
    assert beginnings.under_way(5.0)
    assert not beginnings.under_way(5.001 + EXPECTED_S)


@pytest.mark.parametrize("expected_s", [math.inf, math.nan, -math.inf, 0.0])
def test_times_to_come_and_past_count_for_nothing(beginnings: Beginnings, expected_s: float) -> None:
    beginnings.expected_s = np.array([expected_s, 0.0])
    assert not beginnings.under_way(5.0)
