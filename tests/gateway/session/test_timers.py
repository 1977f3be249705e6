"""When a client that takes no audio is warned, and when it is cut."""
# TODO-DOC What pongs prove.

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.gateway.session.timers import (
    PROBE_INTERVAL_S,
    SLOW_AFTER_S,
    UNPACED_TIMEOUT_FACTOR,
    ReadProbe,
    SlowConsumerTimeout,
)


def listener(*, stalled_s: float = math.inf, paced: bool = True, speech: object = "open") -> Any:
    return SimpleNamespace(stalled_since_s=lambda: stalled_s, paced=paced, speech=speech)


def test_a_client_that_takes_its_audio_has_all_the_time() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_s(listener()) == (math.inf, math.inf)


def test_acks_that_stop_count_from_the_stall() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_s(listener(stalled_s=10.0)) == (10.0 + SLOW_AFTER_S, 15.0)


def test_a_ping_without_an_answer_counts_from_before_it_left() -> None:
    probe = ReadProbe()
    assert probe.start(10.0)
    # It may have stopped probe a whole probe earlier: the limit counts from there.
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(listener()) == (
        10.0 + SLOW_AFTER_S,
        10.0 + 5.0 - PROBE_INTERVAL_S,
    )
    probe.on_answered()
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(listener()) == (math.inf, math.inf)


def test_a_short_limit_leaves_time_for_the_warning() -> None:
    probe = ReadProbe()
    probe.start(10.0)
    slow_s, cut_s = SlowConsumerTimeout(probe, 1.0).deadlines_s(listener())
    assert slow_s <= cut_s


@pytest.mark.parametrize("client", [{"paced": False}, {"speech": None}])
def test_pings_say_nothing_of_who_takes_audio_as_it_is_made_or_has_none_yet(client: dict[str, Any]) -> None:
    probe = ReadProbe()
    probe.start(10.0)
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(listener(**client)) == (math.inf, math.inf)


def test_a_write_that_waits_counts_from_its_beginning() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_since_s(3.0) == (3.0 + SLOW_AFTER_S, 8.0)


def test_who_takes_audio_as_it_is_made_may_take_nothing_for_longer() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_since_s(3.0, paced=False) == (
        3.0 + SLOW_AFTER_S,
        3.0 + 5.0 * UNPACED_TIMEOUT_FACTOR,
    )


def test_a_client_that_was_sent_nothing_is_not_silent() -> None:
    assert ReadProbe().unanswered_since_s() == math.inf


def test_one_ping_is_under_way_at_a_time_and_a_second_between_two() -> None:
    probe = ReadProbe()
    assert [probe.start(100.0 + tenth / 10) for tenth in range(30)].count(True) == 1
    probe.on_answered()
    assert not probe.start(100.5)
    assert probe.start(100.0 + PROBE_INTERVAL_S)


def test_silence_counts_from_the_ping_that_has_no_answer() -> None:
    probe = ReadProbe()
    probe.start(100.0)
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf
    probe.start(101.0)
    assert probe.unanswered_since_s() == 101.0
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf


def test_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    probe = ReadProbe()
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf
    assert probe.start(0.0)
