"""The slow-consumer timeout and the read probes."""

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


def utterance(
    *,
    stalled_s: float = math.inf,
    paced: bool = True,
    speech: object = "open",
    send_ahead_s: float = 0.4,
    continued_s: float = -math.inf,
) -> Any:
    pacer = SimpleNamespace(send_ahead_s=send_ahead_s if paced else 0.0)
    hold = SimpleNamespace(held=False, continued_s=continued_s)
    return SimpleNamespace(stalled_since_s=lambda: stalled_s, paced=paced, speech=speech, pacer=pacer, hold=hold)


def test_client_that_keeps_up_has_no_deadline() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_s(utterance()) == (math.inf, math.inf)


def test_stopped_acks_count_from_the_stall() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_s(utterance(stalled_s=10.0)) == (10.0 + SLOW_AFTER_S, 15.0)


def test_unanswered_probe_counts_from_one_interval_before_it() -> None:
    probe = ReadProbe()
    assert probe.start(10.0)
    # The client may have stopped reading one interval before the probe.
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(utterance()) == (
        10.0 + SLOW_AFTER_S,
        10.0 + 5.0 - PROBE_INTERVAL_S,
    )
    probe.on_answered()
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(utterance()) == (math.inf, math.inf)


def test_short_timeout_closes_after_the_warning() -> None:
    probe = ReadProbe()
    probe.start(10.0)
    warn_s, close_s = SlowConsumerTimeout(probe, 1.0).deadlines_s(utterance())
    assert warn_s <= close_s


@pytest.mark.parametrize("client", [{"paced": False}, {"speech": None}])
def test_probes_do_not_count_for_unpaced_or_queued_utterances(client: dict[str, Any]) -> None:
    probe = ReadProbe()
    probe.start(10.0)
    assert SlowConsumerTimeout(probe, 5.0).deadlines_s(utterance(**client)) == (math.inf, math.inf)


def test_blocked_write_counts_from_its_start() -> None:
    timeout = SlowConsumerTimeout(ReadProbe(), 5.0)
    assert timeout.deadlines_since_s(3.0, utterance()) == (3.0 + SLOW_AFTER_S, 8.0)
    assert timeout.deadlines_since_s(3.0, None) == (3.0 + SLOW_AFTER_S, 8.0)


def test_client_with_a_longer_lead_has_longer_to_read() -> None:
    probe = ReadProbe()
    timeout = SlowConsumerTimeout(probe, 5.0)
    client = utterance(send_ahead_s=2.5 + SLOW_AFTER_S)
    assert timeout.deadlines_since_s(3.0, client) == (5.5 + SLOW_AFTER_S, 10.5)
    probe.start(10.0)
    assert timeout.deadlines_s(client) == (12.5 + SLOW_AFTER_S, 17.5 - PROBE_INTERVAL_S)
    # Acks tell what was played, however much was sent.
    probe.on_answered()
    stalled = utterance(send_ahead_s=3.5, stalled_s=10.0)
    assert timeout.deadlines_s(stalled) == (10.0 + SLOW_AFTER_S, 15.0)


def test_unpaced_utterance_has_a_longer_timeout() -> None:
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_since_s(3.0, utterance(paced=False)) == (
        3.0 + SLOW_AFTER_S,
        3.0 + 5.0 * UNPACED_TIMEOUT_FACTOR,
    )


def test_no_probe_is_unanswered_at_the_start() -> None:
    assert ReadProbe().unanswered_since_s() == math.inf


def test_probes_are_one_at_a_time_and_one_interval_apart() -> None:
    probe = ReadProbe()
    assert [probe.start(100.0 + tenth / 10) for tenth in range(30)].count(True) == 1
    probe.on_answered()
    assert not probe.start(100.5)
    assert probe.start(100.0 + PROBE_INTERVAL_S)


def test_unanswered_time_is_that_of_the_pending_probe() -> None:
    probe = ReadProbe()
    probe.start(100.0)
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf
    probe.start(101.0)
    assert probe.unanswered_since_s() == 101.0
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf


def test_unexpected_answer_changes_nothing() -> None:
    probe = ReadProbe()
    probe.on_answered()
    assert probe.unanswered_since_s() == math.inf
    assert probe.start(0.0)


def test_probe_from_before_a_hold_counts_from_its_end() -> None:
    probe = ReadProbe()
    assert probe.start(10.0)
    warn_s, close_s = SlowConsumerTimeout(probe, 5.0).deadlines_s(utterance(continued_s=20.0))
    assert (warn_s, close_s) == (20.0 + SLOW_AFTER_S, 20.0 + 5.0 - PROBE_INTERVAL_S)
