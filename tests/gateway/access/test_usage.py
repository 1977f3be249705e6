"""Token buckets, and counts shared by several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from voxgate.gateway.access.usage import BURST_S, SharedUsage, TokenBucket


def two() -> tuple[SharedUsage, SharedUsage]:
    first = SharedUsage.create()
    return first, SharedUsage.attach(first.path, 1)


def test_sockets_are_summed_and_those_of_an_ended_process_cleared() -> None:
    first, second = two()
    for shared_usage in (first, second, second):
        assert shared_usage.acquire_socket(3)
        assert shared_usage.acquire_caller_socket("ada", 3, 10.0)
    assert second.acquire_caller_socket("bob", None, 10.0)
    assert first.open_sockets == 3
    assert (
        first.caller_sockets("ada", 10.0),
        second.caller_sockets("ada", 10.0),
        first.caller_sockets("bob", 10.0),
    ) == (3, 3, 1)
    first.clear_process(1)
    assert (second.open_sockets, second.caller_sockets("ada", 11.0), second.caller_sockets("bob", 11.0)) == (1, 1, 0)


def test_last_socket_is_granted_once() -> None:
    first, second = two()
    assert first.acquire_socket(2)
    assert second.acquire_socket(2)
    assert not first.acquire_socket(2)
    assert not second.acquire_socket(2)
    assert first.acquire_caller_socket("ada", 1, 0.0)
    assert not second.acquire_caller_socket("ada", 1, 0.0)
    second.release_socket()
    first.release_caller_socket("ada", 0.0)
    assert (first.open_sockets, first.caller_sockets("ada", 0.0)) == (1, 0)
    assert first.acquire_socket(2)
    assert second.acquire_caller_socket("ada", 1, 0.0)


def test_token_bucket_is_shared_by_all_processes() -> None:
    first, second = two()
    assert first.take_tokens("ada", 60, 1.0, 60.0, 100.0) == 0.0
    assert second.take_tokens("ada", 10, 1.0, 60.0, 105.0) == 5.0
    assert second.take_tokens("ada", 5, 1.0, 60.0, 105.0) == 0.0, "the refused ones cost nothing"
    assert first.take_tokens("ada", 60, 1.0, 60.0, 1000.0) == 0.0, "it holds no more than it can"
    assert first.take_tokens("ada", 1, 1.0, 60.0, 1000.0) == 1.0
    assert first.take_tokens("bob", 60, 1.0, 60.0, 1000.0) == 0.0


def test_rows_of_idle_callers_are_reused() -> None:
    shared_usage, _ = two()
    shared_usage.acquire_caller_socket("stays", None, 0.0)
    for number in range(20_000):
        shared_usage.acquire_caller_socket(f"10.0.{number}", None, float(number))
        shared_usage.release_caller_socket(f"10.0.{number}", float(number))
    assert shared_usage.caller_sockets("stays", 20_000.0) == 1


def test_callers_beyond_the_table_share_one_row() -> None:
    shared_usage, _ = two()
    for number in range(40_000):
        shared_usage.take_tokens(f"10.0.{number}", 60, 1.0, 60.0, 100.0)
    taken = [shared_usage.take_tokens(f"new {number}", 60, 1.0, 60.0, 100.0) for number in range(200)]
    assert all(wait_s > 0 for wait_s in taken)


def test_sockets_beyond_the_table_are_counted_until_they_close() -> None:
    shared_usage, other = two()
    names = [f"10.0.{number}" for number in range(40_000)]
    held = [name for name in names if shared_usage.acquire_caller_socket(name, 1, 100.0)]
    assert len(held) <= 4097
    assert not shared_usage.acquire_caller_socket("new", 1, 100.0)
    assert shared_usage.acquire_caller_socket("new", 3, 100.0)
    assert other.acquire_caller_socket("new", 3, 100.0)
    for name in held:
        shared_usage.release_caller_socket(name, 100.0)
    assert shared_usage.caller_sockets("new", 1000.0) == 2
    assert not shared_usage.acquire_caller_socket("new", 2, 1000.0)
    other.release_caller_socket("new", 1000.0)
    shared_usage.release_caller_socket("new", 1000.0)
    assert not any(shared_usage.caller_sockets(name, 1000.0) for name in [*names[:5000], "new"])


def test_caller_with_text_debt_is_kept() -> None:
    shared_usage, _ = two()
    assert shared_usage.take_tokens("ada", 600, 1.0, 60.0, 1.0) == 0.0
    for number in range(6_000):
        shared_usage.take_tokens(f"10.0.{number}", 1, 1.0, 60.0, 200.0)
    assert shared_usage.take_tokens("ada", 1, 1.0, 60.0, 301.0) == 241.0


def test_shared_usage_has_no_file() -> None:
    shared_usage = SharedUsage.create()
    assert str(Path(shared_usage.path).readlink()).startswith("/memfd:")


def test_bucket_allows_a_burst_then_the_rate() -> None:
    bucket = TokenBucket(10)
    assert [bucket.take(0.0) for _ in range(int(10 * BURST_S))] == [0.0] * 50
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0.0


def test_bucket_of_a_slow_rate_holds_one_token() -> None:
    bucket = TokenBucket(0.1)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(0.0) == pytest.approx(10)


def test_full_bucket_does_not_overflow() -> None:
    bucket = TokenBucket(1)
    bucket.take(0.0)
    taken = 0
    while bucket.take(1000.0) == 0.0:
        taken += 1
    assert taken == BURST_S


def test_reservations_are_served_at_the_rate() -> None:
    bucket = TokenBucket(10, burst_s=0.2)
    assert [bucket.reserve(0.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.1, 0.2, 0.3])
    assert bucket.reserve(0.3) == pytest.approx(0.1)
    assert bucket.reserve(100.0) == 0.0
