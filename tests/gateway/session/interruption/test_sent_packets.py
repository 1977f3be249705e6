"""Which packets are kept to be sent again."""

from __future__ import annotations

import pytest
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.session.interruption.sent_packets import SentPackets
from voxgate.gateway.session.outbox import AudioPacket

SAMPLES = 100


def packet(seq: int, samples: int = SAMPLES) -> AudioPacket:
    header = AudioHeader(1, seq, seq * SAMPLES, samples, first=seq == 0, last=not samples)
    return AudioPacket(header, bytes(2 * samples))


def seqs(packets: list[AudioPacket]) -> list[int]:
    return [each.header.seq for each in packets]


def test_packets_are_forgotten_once_they_were_surely_heard() -> None:
    kept = SentPackets(later_samples=250, most_samples=10_000)
    for seq in range(20):
        kept.add(packet(seq), played_samples=seq * SAMPLES)
    # 1900 samples were played by the clock, so that 1650 have surely been.
    assert kept.bytes == 2 * SAMPLES * len(kept)
    assert seqs(kept.take_from(0)) == [16, 17, 18, 19]
    assert (kept.bytes, len(kept)) == (0, 0)


def test_packets_of_a_client_that_plays_nothing_are_bounded() -> None:
    kept = SentPackets(later_samples=250, most_samples=500)
    for seq in range(1000):
        kept.add(packet(seq), played_samples=0)
        assert kept.bytes <= 2 * 500
    assert seqs(kept.take_from(0)) == [995, 996, 997, 998, 999]


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (99, 0), (100, 1), (250, 2), (399, 3), (400, 4)])
def test_packets_are_taken_from_the_one_that_contains_the_position(position: int, expected: int) -> None:
    kept = SentPackets(later_samples=10_000, most_samples=10_000)
    for seq in range(4):
        kept.add(packet(seq), played_samples=0)
    assert seqs(kept.take_from(position)) == list(range(expected, 4))
    assert seqs(kept.take_from(0)) == list(range(expected)), "those before it stay"


def test_empty_last_packet_is_taken_although_all_was_heard() -> None:
    kept = SentPackets(later_samples=10_000, most_samples=10_000)
    kept.add(packet(0), played_samples=0)
    kept.add(packet(1, samples=0), played_samples=SAMPLES)
    assert seqs(kept.take_from(SAMPLES)) == [1]
