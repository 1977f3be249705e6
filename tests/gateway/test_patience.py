"""When a client that takes no audio is warned, and when it is cut."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.gateway.patience import SLOW_AFTER_S, UNPACED_TIMES, Patience
from voxgate.gateway.reading import PROBE_S, Reading


def listener(*, stalled_s: float = math.inf, paced: bool = True, speech: object = "open") -> Any:
    return SimpleNamespace(stalled_since_s=lambda: stalled_s, paced=paced, speech=speech)


def test_a_client_that_takes_its_audio_has_all_the_time() -> None:
    assert Patience(Reading(), 5.0).with_s(listener()) == (math.inf, math.inf)


def test_acks_that_stop_count_from_the_stall() -> None:
    assert Patience(Reading(), 5.0).with_s(listener(stalled_s=10.0)) == (10.0 + SLOW_AFTER_S, 15.0)


def test_a_ping_without_an_answer_counts_from_before_it_left() -> None:
    reading = Reading()
    assert reading.ask(10.0)
    # It may have stopped reading a whole probe earlier: the limit counts from there.
    assert Patience(reading, 5.0).with_s(listener()) == (10.0 + SLOW_AFTER_S, 10.0 + 5.0 - PROBE_S)
    reading.answered()
    assert Patience(reading, 5.0).with_s(listener()) == (math.inf, math.inf)


def test_a_short_limit_leaves_time_for_the_warning() -> None:
    reading = Reading()
    reading.ask(10.0)
    slow_s, cut_s = Patience(reading, 1.0).with_s(listener())
    assert slow_s <= cut_s


@pytest.mark.parametrize("client", [{"paced": False}, {"speech": None}])
def test_pings_say_nothing_of_who_takes_audio_as_it_is_made_or_has_none_yet(client: dict[str, Any]) -> None:
    reading = Reading()
    reading.ask(10.0)
    assert Patience(reading, 5.0).with_s(listener(**client)) == (math.inf, math.inf)


def test_a_write_that_waits_counts_from_its_beginning() -> None:
    assert Patience(Reading(), 5.0).after_s(3.0) == (3.0 + SLOW_AFTER_S, 8.0)


def test_who_takes_audio_as_it_is_made_may_take_nothing_for_longer() -> None:
    assert Patience(Reading(), 5.0).after_s(3.0, paced=False) == (3.0 + SLOW_AFTER_S, 3.0 + 5.0 * UNPACED_TIMES)
