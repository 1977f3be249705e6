"""When an utterance has audio to send, the slow-consumer timeout, and the read probes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.gateway.lone_utterance import push_audio, send_due, speaking
from voxgate.gateway.session.active_utterances import Termination
from voxgate.gateway.session.effects import EffectQueue
from voxgate.gateway.session.protocol import WireProtocol
from voxgate.gateway.session.timers import (
    PROBE_INTERVAL_S,
    SLOW_AFTER_S,
    UNPACED_TIMEOUT_FACTOR,
    ReadProbe,
    SlowConsumerTimeout,
    UtteranceTimers,
)


def utterance(
    *,
    stalled_s: float = math.inf,
    paced: bool = True,
    speech: object = "open",
    send_ahead_s: float = 0.4,
    continued_s: float = -math.inf,
) -> Any:
    pacer = SimpleNamespace(send_ahead_s=send_ahead_s if paced else 0.0, stalled_since_s=lambda: stalled_s)
    hold = SimpleNamespace(held=False, continued_s=continued_s)
    outbox = SimpleNamespace(next_samples=1920)
    return SimpleNamespace(paced=paced, speech=speech, pacer=pacer, hold=hold, outbox=outbox)


def test_next_packet_and_played_frames_are_waited_for() -> None:
    nothing: Any = SimpleNamespace()
    timers = UtteranceTimers(cast(WireProtocol, nothing), cast(EffectQueue, nothing), cast(Termination, nothing), 5.0)
    spoken, _ = speaking(send_ahead_ms=400)
    push_audio(spoken, 6)
    send_due(spoken, 2.0)
    assert timers.next_wake_s(spoken, 2.0) == pytest.approx(2.08), "the sixth packet"
    send_due(spoken, 2.08)
    assert timers.next_wake_s(spoken, 2.08) == 2.08, "the first frame was played"
    spoken.credit(2.08)
    assert timers.next_wake_s(spoken, 2.08) == pytest.approx(2.16), "the second frame"


def test_stall_without_audio_to_come_is_none() -> None:
    ended = utterance(stalled_s=10.0)
    ended.outbox.next_samples = None
    assert SlowConsumerTimeout(ReadProbe(), 5.0).deadlines_s(ended) == (math.inf, math.inf)


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
