"""Callers: their names, their limits, and what they share over processes."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.caller import Caller, caller_name
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.usage import SharedUsage
from voxgate.gateway.errors import KeyLimit, RateLimited


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("?", "?"),
        ("", ""),
    ],
)
def test_address_without_a_key_is_cut_to_its_network(address: str, name: str) -> None:
    assert caller_name(None, address) == name


def test_key_is_named_whatever_its_address() -> None:
    assert caller_name("ada", "2001:db8::1") == caller_name("ada", "192.0.2.7") == "ada"


def test_sockets_and_utterances_up_to_the_limit() -> None:
    caller = Caller("ada", KeyLimits(sockets=1, utterances=2))
    caller.acquire_socket(0.0)
    with pytest.raises(KeyLimit, match="1 open sockets") as refused:
        caller.acquire_socket(0.0)
    assert refused.value.retryable
    assert refused.value.retry_after_ms
    caller.release_socket(0.0)
    caller.acquire_socket(0.0)
    caller.utterances = 1
    caller.check_utterance()
    caller.utterances = 2
    with pytest.raises(KeyLimit, match="2 active utterances"):
        caller.check_utterance()


@pytest.mark.parametrize("shared", [False, True])
def test_quota_tells_the_limits_and_what_is_left(shared: bool) -> None:
    usage = SharedUsage.create() if shared else None
    caller = Caller("ada", KeyLimits(sockets=3, utterances=2, characters_per_minute=60), shared_usage=usage)
    assert caller.quota(1.0).characters_left == 60
    caller.acquire_socket(1.0)
    caller.charge_text(45, 1.0)
    quota = caller.quota(11.0)
    assert (quota.sockets, quota.sockets_left, quota.utterances) == (3, 2, 2)
    assert (quota.characters_per_minute, quota.characters_left) == (60, 25)
    caller.charge_text(80, 100.0)
    assert caller.quota(100.0).characters_left == 0, "a debt"


def test_quota_without_limits_is_empty() -> None:
    assert Caller("ada", KeyLimits()).quota(0.0).model_dump(exclude_none=True) == {}


def test_text_limit_is_refilled_over_time() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.charge_text(60, 0.0)
    with pytest.raises(RateLimited) as refused:
        caller.charge_text(10, 0.0)
    assert refused.value.retry_after_ms == 10_000
    with pytest.raises(RateLimited):
        caller.charge_text(10, 9.5)
    caller.charge_text(10, 10.0)


def test_text_above_the_minute_is_taken_once_and_owed() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.charge_text(120, 0.0)
    with pytest.raises(RateLimited):
        caller.charge_text(1, 60.0)
    caller.charge_text(1, 61.0)


def test_no_limits_without_settings() -> None:
    caller = Caller("ada", KeyLimits())
    caller.sockets = caller.utterances = 10**6
    caller.acquire_socket(0.0)
    caller.check_utterance()
    caller.charge_text(10**9, 0.0)


def test_changed_limits_do_not_refill_the_minute() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.charge_text(60, 0.0)
    caller.set_limits(KeyLimits(characters_per_minute=60, sockets=1))
    with pytest.raises(RateLimited):
        caller.charge_text(1, 0.0)


def test_limited_caller_is_counted_over_all_processes() -> None:
    first = SharedUsage.create()
    second = SharedUsage.attach(first.path, 1)
    here = Caller("ada", KeyLimits(sockets=2), has_key=False, shared_usage=first)
    there = Caller("ada", KeyLimits(sockets=2), has_key=False, shared_usage=second)
    here.acquire_socket(0.0)
    there.acquire_socket(0.0)
    assert here.open_sockets(0.0) == there.open_sockets(0.0) == 2
    with pytest.raises(KeyLimit):
        here.acquire_socket(0.0)
    there.release_socket(0.0)
    assert here.open_sockets(0.0) == 1
