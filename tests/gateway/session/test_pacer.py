"""The playback clock: lead, underruns, acks, and clients that stop to ack."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.gateway.session.pacer import ACK_HORIZON_MS, TIMER_SLACK_S, Pacer

RATE = 24_000
PACKET = 1920


def test_first_packets_leave_at_once_up_to_the_lead() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    for _ in range(5):
        assert pacer.due_s(PACKET, 10.0) <= 10.0
        pacer.send(PACKET, 10.0)
    assert pacer.due_s(PACKET, 10.0) == pytest.approx(10.08)
    assert pacer.due_s(480, 10.0) == pytest.approx(10.02)


def test_position_follows_the_clock_up_to_what_was_sent() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    pacer.send(PACKET, 0.0)
    slack = int(TIMER_SLACK_S * RATE)
    assert pacer.position_samples(0.0) in range(slack + 1)
    assert pacer.position_samples(0.04) == pytest.approx(960, abs=slack)
    assert pacer.position_samples(9.0) == PACKET


def test_send_returns_the_length_of_the_underrun() -> None:
    pacer = Pacer(RATE, send_ahead_ms=80)
    assert pacer.send(PACKET, 1.0) == 0.0
    assert pacer.send(PACKET, 1.05) == 0.0
    assert pacer.send(PACKET, 1.5) == pytest.approx(0.5 - 0.16)
    assert [Pacer(RATE, send_ahead_ms=None).send(PACKET, at_s) for at_s in (0.0, 5.0)] == [0.0, 0.0]


def test_clock_restarts_after_an_underrun() -> None:
    pacer = Pacer(RATE, send_ahead_ms=80)
    pacer.send(PACKET, 0.0)
    assert pacer.due_s(PACKET, 5.0) <= 5.0
    pacer.send(PACKET, 5.0)
    assert pacer.position_samples(5.04) == pytest.approx(PACKET + 960, abs=24)
    assert pacer.due_s(PACKET, 5.0) == pytest.approx(5.08)


def test_frames_played_and_time_of_the_next() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    assert pacer.next_frame_s(0.0) == math.inf, "not enough was sent"
    pacer.send(2 * PACKET, 0.0)
    assert pacer.frames_played(0.0) == 0
    assert pacer.next_frame_s(0.0) == pytest.approx(0.08)
    assert pacer.frames_played(0.08) == 1
    assert pacer.next_frame_s(0.08) == pytest.approx(0.16)
    assert pacer.next_frame_s(0.16) == math.inf


def test_ack_sets_the_clock() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    pacer.send(5 * PACKET, 0.0)
    pacer.ack(0, 0.2)  # the client had not begun to play
    assert pacer.position_samples(0.2) <= 24
    assert pacer.due_s(PACKET, 0.2) == pytest.approx(0.28)
    pacer.ack(3 * PACKET, 0.3)
    assert pacer.due_s(PACKET, 0.3) <= 0.3


def test_acks_do_not_make_the_speech_faster_than_playback() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    now_s = 10.0
    while now_s < 20.0:
        while pacer.due_s(PACKET, now_s) <= now_s + TIMER_SLACK_S:
            pacer.send(PACKET, now_s)
            pacer.ack(2**53 - 1, now_s)
        now_s += 0.001
    assert pacer.sent_samples <= (10.0 + 2 * 0.4) * RATE + PACKET
    assert pacer.frames_played(20.0) <= 10.4 / 0.08


def test_ack_neither_decreases_nor_exceeds_what_was_sent() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    pacer.send(5 * PACKET, 0.0)
    pacer.ack(3 * PACKET, 0.24)
    pacer.ack(PACKET, 0.25)
    assert pacer.position_samples(0.25) >= 3 * PACKET
    pacer.ack(10**12, 0.26)
    assert pacer.position_samples(0.26) == 5 * PACKET


def test_clock_of_a_client_that_stops_to_ack_stops_at_the_horizon() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    pacer.send(5 * PACKET, 0.0)
    pacer.ack(PACKET, 0.08)
    assert pacer.stalled_since_s() == math.inf
    now_s = 0.08
    while (due_s := pacer.due_s(PACKET, now_s)) < math.inf:
        now_s = max(now_s, due_s)
        pacer.send(PACKET, now_s)
    horizon = ACK_HORIZON_MS * RATE // 1000
    assert pacer.position_samples(1000.0) == PACKET + horizon
    assert pacer.sent_samples <= PACKET + horizon + 400 * RATE // 1000
    assert pacer.stalled_since_s() == pytest.approx(0.08 + ACK_HORIZON_MS / 1000)
    pacer.ack(2 * PACKET, 1000.0)
    assert pacer.due_s(PACKET, 1000.0) < math.inf


def test_unpaced_packets_are_always_due() -> None:
    pacer = Pacer(RATE, send_ahead_ms=None)
    for i in range(100):
        assert pacer.due_s(PACKET, 0.0) <= 0.0
        pacer.send(PACKET, 0.0)
        assert pacer.frames_played(0.0) == i + 1
    pacer.ack(PACKET, 0.0)
    pacer.send(PACKET, 0.0)
    assert pacer.stalled_since_s() == math.inf


@given(
    send_ahead_ms=st.sampled_from([80, 250, 400]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 0.5),
            st.sampled_from(["send", "wait", "ack", "old ack"]),
            st.sampled_from([480, 1920]),
        )
    ),
)
def test_audio_sent_ahead_never_exceeds_the_lead(send_ahead_ms: int, steps: list[tuple[float, str, int]]) -> None:
    pacer = Pacer(RATE, send_ahead_ms)
    now_s, acked = 0.0, 0
    for pause_s, step, samples in steps:
        now_s += pause_s
        if step == "send" and pacer.due_s(samples, now_s) <= now_s + TIMER_SLACK_S:
            underrun = pacer.position_samples(now_s) >= pacer.sent_samples
            pacer.send(samples, now_s)
            ahead = pacer.sent_samples - pacer.position_samples(now_s)
            assert underrun or ahead <= send_ahead_ms * RATE // 1000 + TIMER_SLACK_S * RATE + 1
        elif step == "ack":
            acked = max(acked, pacer.position_samples(now_s) - samples)
            pacer.ack(acked, now_s)
        elif step == "old ack":
            pacer.ack(acked // 2, now_s)
        assert 0 <= pacer.position_samples(now_s) <= pacer.sent_samples


def test_packets_leave_later_when_playback_starts_later() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    pacer.hold_until(10.3)
    pacer.send(PACKET, 10.0)
    assert pacer.position_samples(10.2) == 0
    assert pacer.played_out_s(10.1) == pytest.approx(10.3 + 0.08)
    assert pacer.position_samples(10.34) == pytest.approx(960, abs=24)
    assert pacer.due_s(PACKET, 10.0) == pytest.approx(10.3 + 0.16 - 0.4)
    for _ in range(4):
        pacer.send(PACKET, 10.1)
    assert pacer.due_s(PACKET, 10.1) == pytest.approx(10.3 + 0.48 - 0.4)
    assert pacer.played_out_s(10.5) == pytest.approx(10.7, abs=0.002)


def test_stopped_clock_goes_on_at_its_position_with_the_first_packet_after_it_was_rewound() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    for _ in range(5):
        pacer.send(PACKET, 0.0)
    pacer.stop(3000)
    assert pacer.position_samples(0.2) == pacer.position_samples(7.0) == 3000
    assert pacer.frames_played(7.0) == 1
    assert pacer.next_frame_s(7.0) == math.inf
    pacer.rewind(PACKET, 3000, 7.0)
    assert pacer.position_samples(8.0) == 3000
    assert pacer.due_s(PACKET, 8.0) <= 8.0
    assert pacer.send(PACKET, 8.0) == 0.0, "no underrun"
    assert pacer.position_samples(8.0) == pytest.approx(3000, abs=24)
    assert pacer.position_samples(8.02) == pytest.approx(3000 + 480, abs=24)
    for _ in range(4):
        pacer.send(PACKET, 8.02)
    assert pacer.due_s(PACKET, 8.02) == pytest.approx(8.0 + (6 * PACKET - 9600 - 3000 + PACKET) / RATE)


def test_acks_from_before_the_clock_was_rewound_do_not_count() -> None:
    pacer = Pacer(RATE, send_ahead_ms=400)
    for _ in range(10):
        pacer.send(PACKET, 0.0)
    pacer.ack(9000, 0.4)
    pacer.stop(6000)
    pacer.rewind(3 * PACKET, 6000, 1.0)
    pacer.send(PACKET, 2.0)
    pacer.ack(5000, 2.01)
    assert pacer.position_samples(2.01) >= 6000
    pacer.ack(10**9, 2.02)
    assert pacer.position_samples(2.02) == 4 * PACKET
