"""The share of a caller, in virtual time."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.caller_share import PRESENCE_S, CallerShare


def test_caller_that_is_alone_may_hold_every_place() -> None:
    share = CallerShare(0.5)
    assert share.limit("a", 8, 0.0) == 8
    share.acquire("a")
    assert share.limit("a", 8, 0.0) == 8
    assert share.held("a") == 1


def test_caller_is_limited_while_another_holds_a_place() -> None:
    share = CallerShare(0.5)
    share.acquire("b")
    assert share.limit("a", 8, 0.0) == 4
    assert share.limit("b", 8, 0.0) == 8
    share.release("b")
    assert share.limit("a", 8, 0.0) == 8


def test_caller_is_limited_for_a_minute_after_another_was_refused() -> None:
    share = CallerShare(0.5)
    share.refuse("b", 10.0)
    assert share.limit("a", 8, 10.0 + PRESENCE_S - 0.1) == 4
    assert share.limit("b", 8, 11.0) == 8, "its own refusal does not limit a caller"
    assert share.limit("a", 8, 10.0 + PRESENCE_S) == 8


def test_latest_refusal_of_another_caller_counts_however_many_are_refused() -> None:
    share = CallerShare(0.5)
    for number in range(1000):
        share.refuse(f"caller {number}", number / 10)
    share.refuse("a", 100.0)
    assert share.limit("a", 8, 101.0) == 4
    assert share.limit("caller 999", 8, 101.0) == 4


@pytest.mark.parametrize(("places", "limit"), [(0, 0), (1, 1), (2, 1), (3, 2), (64, 32)])
def test_share_of_a_few_places_is_at_least_one(places: int, limit: int) -> None:
    share = CallerShare(0.5)
    share.acquire("b")
    assert share.limit("a", places, 0.0) == limit


def test_share_of_one_sets_no_limit() -> None:
    share = CallerShare(1.0)
    share.acquire("b")
    assert share.limit("a", 7, 0.0) == 7


def test_callers_known_to_be_present_elsewhere_limit_a_caller() -> None:
    assert CallerShare(0.5).limit("a", 8, 0.0, others=True) == 4
