from __future__ import annotations

import pytest
from voxgate.client import NEVER, ProtocolViolation, Refused, Retry, Unreachable

GONE = Unreachable("nobody there")


def test_pauses_double_up_to_a_limit() -> None:
    retry = Retry(patience_s=1000, first_pause_s=1, longest_pause_s=5)
    assert [retry.pause_s(GONE, tries, 0, 0.5) for tries in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]


def test_pauses_are_spread() -> None:
    retry = Retry(first_pause_s=1)
    assert retry.pause_s(GONE, 1, 0, 0.0) == 0.5
    assert retry.pause_s(GONE, 1, 0, 0.75) == 1.25


def test_a_gateway_that_names_a_time_is_not_asked_before() -> None:
    retry = Retry(first_pause_s=0.1)
    assert retry.pause_s(Refused(503, "full", retry_after_ms=3000), 1, 0, 0.5) == 3
    assert retry.pause_s(Refused(503, "full", retry_after_ms=1), 1, 0, 0.5) == 0.1


@pytest.mark.parametrize("failure", [Refused(401, "no key"), Refused(404, "no path"), ProtocolViolation("nonsense")])
def test_what_will_not_change_is_not_tried_again(failure: Exception) -> None:
    assert Retry().pause_s(failure, 1, 0, 0.5) is None


def test_patience_ends() -> None:
    retry = Retry(patience_s=10, first_pause_s=1)
    assert retry.pause_s(GONE, 1, 9, 0.5) == 1
    assert retry.pause_s(GONE, 1, 9.1, 0.5) is None
    assert NEVER.pause_s(GONE, 1, 0, 0.0) is None
