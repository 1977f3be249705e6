"""What one key may use."""

from __future__ import annotations

import pytest
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.errors import KeyLimit, RateLimited


def test_sockets_and_utterances_up_to_the_limit() -> None:
    caller = Caller("ada", KeyLimits(sockets=1, utterances=2))
    caller.take_socket(0.0)
    with pytest.raises(KeyLimit, match="1 sockets") as refused:
        caller.take_socket(0.0)
    assert refused.value.retryable
    assert refused.value.retry_after_ms
    caller.give_socket(0.0)
    caller.take_socket(0.0)
    caller.utterances = 1
    caller.check_utterance()
    caller.utterances = 2
    with pytest.raises(KeyLimit, match="2 utterances"):
        caller.check_utterance()


def test_text_of_a_minute_comes_back_with_time() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.spend_text(60, 0.0)
    with pytest.raises(RateLimited) as refused:
        caller.spend_text(10, 0.0)
    assert refused.value.retry_after_ms == 10_000
    with pytest.raises(RateLimited):
        caller.spend_text(10, 9.5)
    caller.spend_text(10, 10.0)


def test_a_text_longer_than_the_minute_is_taken_once_and_owed() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.spend_text(120, 0.0)
    with pytest.raises(RateLimited):
        caller.spend_text(1, 60.0)
    caller.spend_text(1, 61.0)


def test_without_limits_there_are_none() -> None:
    caller = Caller("ada", KeyLimits())
    caller.sockets = caller.utterances = 10**6
    caller.take_socket(0.0)
    caller.check_utterance()
    caller.spend_text(10**9, 0.0)


def test_other_limits_do_not_refill_the_minute() -> None:
    caller = Caller("ada", KeyLimits(characters_per_minute=60))
    caller.spend_text(60, 0.0)
    caller.change(KeyLimits(characters_per_minute=60, sockets=1))
    with pytest.raises(RateLimited):
        caller.spend_text(1, 0.0)
