"""Rates of messages, and the errors that close a socket."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.rate_policy import RatePolicy, Strikes
from voxgate.gateway.errors import RateLimited, UnknownUtterance
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import BadMessage


def test_each_kind_of_message_has_its_own_rate() -> None:
    policy = RatePolicy(Settings(messages_per_s=100, starts_per_s=1, interrupts_per_s=1))
    for _ in range(5):
        policy.take("starts", 0.0)
    with pytest.raises(RateLimited, match="too many starts") as refused:
        policy.take("starts", 0.0)
    assert refused.value.retry_after_ms == 1000
    policy.take("interrupts", 0.0)
    policy.take("messages", 0.0)
    policy.take("starts", 1.0)


def test_third_bad_message_within_the_window_closes() -> None:
    policy = RatePolicy(Settings())
    reasons = [policy.close_reason(BadMessage("bad"), now_s) for now_s in (0.0, 1.0, 2.0)]
    assert reasons == [None, None, "repeated bad messages"]


def test_twentieth_rate_limited_message_within_the_window_closes() -> None:
    policy = RatePolicy(Settings())
    reasons = [policy.close_reason(RateLimited("too many"), 0.0) for _ in range(20)]
    assert reasons == [None] * 19 + ["rate limit"]


def test_other_errors_do_not_close() -> None:
    policy = RatePolicy(Settings())
    assert [policy.close_reason(UnknownUtterance("unknown"), 0.0) for _ in range(100)] == [None] * 100


def test_strikes_count_within_the_window_only() -> None:
    strikes = Strikes(3, 10.0)
    assert [strikes.record(t) for t in (0.0, 5.0, 10.5, 14.0, 30.0, 31.0, 32.0)] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip
