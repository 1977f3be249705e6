"""Token buckets and strikes."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.usage import BURST_S, TokenBucket
from voxgate.gateway.session.rate_policy import Strikes


def test_a_burst_passes_then_the_rate_counts() -> None:
    bucket = TokenBucket(10)
    assert [bucket.take(0.0) for _ in range(int(10 * BURST_S))] == [0.0] * 50
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0.0


def test_a_slow_rate_still_allows_one() -> None:
    bucket = TokenBucket(0.1)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(0.0) == pytest.approx(10)


def test_a_full_bucket_does_not_overflow() -> None:
    bucket = TokenBucket(1)
    bucket.take(0.0)
    taken = 0
    while bucket.take(1000.0) == 0.0:
        taken += 1
    assert taken == BURST_S


def test_strikes_count_within_the_window_only() -> None:
    strikes = Strikes(3, 10.0)
    assert [strikes.record(t) for t in (0.0, 5.0, 10.5, 14.0, 30.0, 31.0, 32.0)] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip
