"""Numbering and bound of the outbox, and what the encoder puts into it."""

from __future__ import annotations

import numpy as np
from fakes.gateway.packet_encoder import FakeEncoder, FakePacket
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.gateway.session.outbox import Outbox, SpeechEncoder
from voxgate.pipeline.interface import SpeechChunk


def packets(*samples: int) -> list[FakePacket]:
    return [FakePacket(bytes(2 * n), n) for n in samples]


def test_packets_are_numbered_without_gap_and_the_last_is_marked() -> None:
    outbox = Outbox(7, 24_000, 1000)
    outbox.put(packets(1920, 1920, 500))
    outbox.close()
    headers = [outbox.take().header for _ in range(3)]
    assert [(h.number, h.seq, h.pts, h.samples) for h in headers] == [
        (7, 0, 0, 1920),
        (7, 1, 1920, 1920),
        (7, 2, 3840, 500),
    ]
    assert [(h.first, h.last) for h in headers] == [(True, False), (False, False), (False, True)]
    assert outbox.drained
    assert outbox.next_samples is None


def test_close_of_an_empty_outbox_adds_an_empty_last_packet() -> None:
    outbox = Outbox(1, 24_000, 1000)
    outbox.put(packets(1920))
    outbox.take()
    assert not outbox.drained
    outbox.close()
    header, payload = outbox.take()
    assert (header.seq, header.pts, header.samples, header.last, payload) == (1, 1920, 0, True, b"")
    assert outbox.drained


def test_room_is_measured_in_milliseconds_of_audio() -> None:
    outbox = Outbox(1, 24_000, 160)
    outbox.put(packets(1920))
    assert outbox.has_room
    outbox.put(packets(1920))
    assert not outbox.has_room
    outbox.take()
    assert outbox.has_room


def test_drop_empties_the_outbox() -> None:
    outbox = Outbox(1, 24_000, 160)
    outbox.put(packets(1920, 1920, 1920))
    outbox.drop()
    assert outbox.next_samples is None
    assert outbox.has_room
    assert not outbox.drained


def test_packets_that_are_put_back_leave_once_more_before_all_that_wait() -> None:
    outbox = Outbox(7, 24_000, 160)
    outbox.put(packets(1920, 1920, 1920))
    sent = [outbox.take(), outbox.take()]
    outbox.put_back(sent)
    assert (outbox.next_seq, outbox.next_pts, outbox.next_samples) == (0, 0, 1920)
    assert outbox.waiting_samples == 3 * 1920
    outbox.close()
    assert not outbox.has_room
    assert [outbox.take() for _ in range(2)] == sent
    assert (outbox.next_seq, outbox.next_pts) == (2, 3840)
    last = outbox.take()
    assert (last.header.seq, last.header.last, outbox.drained) == (2, True, True)
    assert outbox.sent_messages == 3
    outbox.put_back([last])
    assert not outbox.drained
    outbox.drop()
    assert (outbox.next_samples, outbox.waiting_samples) == (None, 0)


def test_after_a_rewind_packets_that_were_put_before_are_dropped() -> None:
    outbox = Outbox(1, 24_000, 1000)
    for number in range(4):
        outbox.put(packets(1920), 1920 * (number + 1))
    outbox.take()
    assert outbox.fixed_samples == 1920
    outbox.rewind(3 * 1920)
    assert outbox.waiting_samples == 2 * 1920
    assert outbox.repeating
    for number in range(3):
        outbox.put([FakePacket(b"again", 1920)], 1920 * (number + 1))
    assert not outbox.repeating
    assert outbox.repeated_samples == 3 * 1920
    outbox.put([FakePacket(b"other", 100)])
    outbox.close()
    taken = [outbox.take() for _ in range(3)]
    assert [(packet.header.seq, packet.header.pts, packet.header.last) for packet in taken] == [
        (1, 1920, False),
        (2, 3840, False),
        (3, 5760, True),
    ]
    assert taken[-1].payload == b"other"


def test_an_end_that_was_not_sent_is_taken_back() -> None:
    outbox = Outbox(1, 24_000, 1000)
    outbox.put(packets(1920), 1920)
    outbox.put(packets(50))
    outbox.close()
    outbox.take()
    assert outbox.reopen()
    assert outbox.next_samples is None
    assert not outbox.drained


def test_an_end_that_was_sent_in_part_is_final() -> None:
    outbox = Outbox(1, 24_000, 1000)
    outbox.put(packets(1920, 50))
    outbox.close()
    outbox.take()
    assert not outbox.reopen()
    assert outbox.next_samples == 50


def test_each_packet_is_fixed_by_the_frame_that_completes_it() -> None:
    outbox = Outbox(1, 24_000, 1000)
    encoder = SpeechEncoder(FakeEncoder(OutputFormat("pcm")), outbox)
    encoder.push(SpeechChunk(np.zeros(3 * FRAME_SAMPLES, np.float32), 0, 3))
    fixed = []
    while outbox.next_samples is not None:
        outbox.take()
        fixed.append(outbox.fixed_samples)
    assert fixed == [FRAME_SAMPLES, 2 * FRAME_SAMPLES, 3 * FRAME_SAMPLES]
    assert (encoder.frames, encoder.true_samples) == (3, 3 * FRAME_SAMPLES)
    encoder.renew()
    assert (encoder.frames, encoder.true_samples) == (0, 0)
    encoder.finish()
    outbox.take()
    assert outbox.drained


def test_the_packet_marked_as_last_is_final_though_speech_alone_completed_it() -> None:
    outbox = Outbox(1, 24_000, 1000)
    outbox.put(packets(1920), 1920)
    outbox.close()
    assert outbox.take().header.last
    assert not outbox.reopen()
